"""The house rules: imports point one way, results have one home each."""

import ast
import functools
import pathlib
import re

import dp_accounting_ext

PACKAGE = pathlib.Path(dp_accounting_ext.__file__).parent
TESTS = pathlib.Path(__file__).parent
PAGES = TESTS.parent / "docs"
BENCHMARKS = TESTS.parent / "benchmarks"

# From the bottom up: a module may import only from lower layers, or from the modules
# named beside it.
LAYERS = [
    {"common_types"},
    {"displays", "kernel", "validation"},
    {"dp_event", "pairs", "renyi", "wpm"},
    {"amplification"},
    {"mechanisms"},
    {"bounds", "reading"},
    {"accountants", "verify"},
    {"correlated"},
    {"integrations", "studies"},
    {"command_line", "__init__"},
    {"__main__"},
]


def layer(name):
    return next(level for level, names in enumerate(LAYERS) if name in names)


def home(path):
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text())


@functools.cache
def imports(path):
    return set(_imports(path))


def _imports(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module.split(".")[0] != "dp_accounting_ext":
                continue
            inner = node.module.split(".")[1:]
            for name in node.names:
                yield ([*inner, name.name] if inner else [name.name])[0]


@functools.cache
def modules():
    return sorted(PACKAGE.rglob("*.py"))


def test_every_module_has_a_layer():
    assert {home(path) for path in modules()} == set().union(*LAYERS)


def test_imports_point_one_way():
    for path in modules():
        here = home(path)
        for there in imports(path):
            allowed = layer(there) < layer(here)
            allowed |= there == here and (PACKAGE / here).is_dir()
            assert allowed, f"{path.name} imports {there}"


def test_the_page_of_the_architecture_has_these_layers():
    page = (PAGES / "architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", page, re.MULTILINE)
    table = {int(level): set(re.findall(r"`(\w+)`", names)) for level, names in rows}
    assert len(rows) == len(LAYERS)
    assert table == dict(enumerate(LAYERS, start=1))


def test_a_folder_has_tests_in_a_folder_of_its_name():
    for folder in {home(path) for path in modules()}:
        if (PACKAGE / folder).is_dir():
            assert any((TESTS / folder).rglob("test_*.py")), folder


def test_correlated_noise_is_a_house_of_its_own():
    """The core does not know it: its events are registered, as those of others are."""
    entries = {"__init__", "command_line", "integrations", "studies"}
    for path in modules():
        if home(path) not in {"correlated"} | entries:
            assert "correlated" not in imports(path), path


def test_the_kernel_knows_no_mechanism():
    for path in (PACKAGE / "kernel").glob("*.py"):
        assert imports(path) <= {"kernel", "common_types"}


def test_a_second_opinion_shares_nothing_but_the_events():
    """Neither names that it imports, nor what these would bring along."""
    events = r" import dp_event|\.wpm import sampling_event"
    allowed = rf"dp_accounting_ext(\.verify(\.\w+)*|{events})"
    for path in (PACKAGE / "verify").glob("*.py"):
        assert imports(path) <= {"verify", "dp_event", "wpm"}, path
        for line in re.findall(
            r"^\s*(?:from|import) dp_accounting_ext.*", path.read_text(), re.M
        ):
            assert re.match(rf"\s*from {allowed}", line), line


def test_only_the_adapter_reads_private_fields_of_dp_accounting():
    fields = r"\._(probs|lower_loss|discretization|infinity_mass|pmf_remove|pmf_add)\b"
    for path in modules():
        if path.name != "stock_pld.py":
            found = re.findall(r"pld" + fields, path.read_text())
            assert not found, path


@functools.cache
def documented_functions():
    """Qualified names of functions and classes whose docstring cites a source."""
    found = {}
    homes = {path: PACKAGE for path in modules()}
    homes |= {path: BENCHMARKS for path in sorted(BENCHMARKS.glob("papers/*.py"))}
    for path, home_of in homes.items():
        name = ".".join(path.relative_to(home_of).with_suffix("").parts)
        stack = [(node, "") for node in tree_of(path).body]
        while stack:
            node, prefix = stack.pop()
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            qualified = f"{prefix}{node.name}"
            found[f"{name}.{qualified}"] = ast.get_docstring(node) or ""
            if isinstance(node, ast.ClassDef):
                stack += [(inner, f"{qualified}.") for inner in node.body]
    return found


def test_the_index_of_the_papers_results_is_true():
    """Each row: a result, and the function whose source names it."""
    index = (PAGES / "mathematics.md").read_text()
    papers = re.split(r"^## Paper \d: ", index, flags=re.MULTILINE)[1:]
    functions = documented_functions()
    assert len(papers) == 3
    kinds = "Definition|Lemma|Claim|Theorem|Remark|Algorithms?|Section"
    kinds += "|Proposition|Appendix"
    for paper in papers:
        table = paper.partition("| result | function |\n|---|---|\n")[2]
        table = table.partition("\n\n")[0]
        rows = re.findall(
            rf"^\| ((?:{kinds}) [^|`]+) \| `([\w.]+)` \|$", table, re.MULTILINE
        )
        assert len(rows) == len(table.splitlines()) >= 6
        for result, function in rows:
            assert function in functions, function
            docstring = " ".join(functions[function].split())
            for name in re.split(r", | and ", result):
                number = re.sub(r"s? ", " ", name.strip())
                last = number.split()[-1]
                assert last in docstring, f"{function} does not name {result}"
        cited = {result for result, _ in rows}
        assert len(cited) == len(rows), "a result has two homes"


def known_names():
    """Dotted names of modules, functions, classes, and what modules export."""
    found = set(documented_functions())
    for path in modules():
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        found.add(module.removesuffix(".__init__"))
        if path.stem == "__init__":
            exported = re.findall(
                r" import (?:\w+ as )?(\w+)$", path.read_text(), re.MULTILINE
            )
            found |= {f"{path.parent.name}.{name}" for name in exported}
        else:
            exported = re.findall(
                r" import (\w+) as \1$", path.read_text(), re.MULTILINE
            )
            found |= {f"{module}.{name}" for name in exported}
    return found


def test_names_on_the_pages_exist():
    """Functions by their last names, from a module on; files by their paths."""
    known = known_names()
    parts = [name.split(".") for name in known]
    endings = {".".join(name[i:]) for name in parts for i in range(len(name))}
    stems = {path.stem for path in modules()} | {path.parent.name for path in modules()}
    wrong, found = [], 0
    for page in [*PAGES.glob("*.md"), *PAGES.parent.glob("*.md")]:
        text = page.read_text()
        for name in re.findall(r"`(?:dp_accounting_ext\.)?(\w+(?:\.\w+)+)[`(]", text):
            first, last = name.split(".")[0], name.split(".")[-1]
            if first in stems and last != "py":
                wrong += [f"{page.name}: {name}"] * (name not in endings)
                found += 1
        for path in re.findall(r"`(\w+/[\w/]*\.py)`", text):
            homes = (PAGES.parent, PACKAGE, PACKAGE.parent)
            missing = not any((home / path).exists() for home in homes)
            wrong += [f"{page.name}: {path}"] * missing
    assert not wrong
    assert found > 60
