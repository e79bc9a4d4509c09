"""Tests against the real libraries run where these are installed: .ci/integrations."""

import importlib.util

NEEDS = {
    "test_opacus.py": "opacus",
    "test_opacus_what_ran.py": "opacus",
    "test_opacus_processes.py": "opacus",
    "test_jax_privacy.py": "jax_privacy",
}
collect_ignore = [
    name for name, library in NEEDS.items() if importlib.util.find_spec(library) is None
]
