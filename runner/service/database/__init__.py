"""What the service keeps: tables, transactions and one module of functions per noun."""
