"""The figures and experiments of the papers, computed again."""
