"""What users ask: accountants, brackets by sampling, distributions, risks, budgets."""
