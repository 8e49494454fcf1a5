"""Why calls are made: reasoning bound to receipts, held against what calls do; and plans that a host declares."""
