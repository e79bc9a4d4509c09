"""Where a registry shows the README, links into the checkout lead nowhere."""

import pathlib
import re

import setuptools

readme = pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8")
setuptools.setup(
    long_description=re.sub(r"\[([^]]+)\]\((?!https?:)[^)]+\)", r"\1", readme),
    long_description_content_type="text/markdown",
)
