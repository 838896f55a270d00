"""Define environments for training and evaluating language models, and pack them into bundles.

Import from the subpackages: `benchmax.envs`, `benchmax.auth`, `benchmax.bundle`. This module imports nothing,
so that `import benchmax` costs nothing.
"""
