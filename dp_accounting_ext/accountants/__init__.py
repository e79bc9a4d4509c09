"""Accountants, brackets by sampling, loss distributions, risks and budgets."""
