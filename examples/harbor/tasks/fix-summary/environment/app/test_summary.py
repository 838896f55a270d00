import unittest

import summary


class SummaryTest(unittest.TestCase):
    def test_the_median_is_the_number_in_the_middle(self):
        self.assertEqual(summary.median([9, 1, 5]), 5)

    def test_the_median_of_an_even_count_is_the_mean_of_two(self):
        self.assertEqual(summary.median([4, 1, 3, 2]), 2.5)

    def test_the_spread_does_not_depend_on_the_order(self):
        self.assertEqual(summary.spread([5, -2, 3]), 7)

    def test_of_numbers_that_are_equally_common_the_smallest_counts(self):
        self.assertEqual(summary.most_common([3, 1, 3, 1]), 1)

    def test_there_may_be_no_numbers(self):
        self.assertIsNone(summary.median([]))
        self.assertEqual(summary.spread([]), 0)
        self.assertIsNone(summary.most_common([]))


if __name__ == "__main__":
    unittest.main()
