"""The house rules: imports point one way, results have one home each."""

import ast
import pathlib
import re

import dp_accounting_ext

PACKAGE = pathlib.Path(dp_accounting_ext.__file__).parent
README = pathlib.Path(__file__).parent.parent / "README.md"

# From the bottom up: a module may import only from lower layers, or from the modules
# named beside it.
LAYERS = [
    {"kernels", "validation", "dp_event"},
    {"pairs", "renyi", "wpm"},
    {"composition", "amplification"},
    {"mechanisms"},
    {"privacy_bounds", "trade_off_bounds", "reading"},
    {"pld", "pld_accountant", "rdp_accountant"},
    {"studies"},
    {"papers"},
    {"command_line", "__init__"},
    {"__main__"},
]


def layer(name):
    return next(level for level, names in enumerate(LAYERS) if name in names)


def home(path):
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module.split(".")[0] != "dp_accounting_ext":
                continue
            inner = node.module.split(".")[1:]
            for name in node.names:
                yield ([*inner, name.name] if inner else [name.name])[0]


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


def test_kernels_know_no_types_of_the_package():
    for path in (PACKAGE / "kernels").glob("*.py"):
        assert set(imports(path)) <= {"kernels"}


def test_only_the_adapter_reads_private_fields_of_the_host():
    fields = r"\._(probs|lower_loss|discretization|infinity_mass|pmf_remove|pmf_add)\b"
    for path in modules():
        if path.name != "stock_pld.py":
            found = re.findall(r"pld" + fields, path.read_text())
            assert not found, path


def documented_functions():
    """Qualified names of functions and classes whose docstring cites a source."""
    found = {}
    for path in modules():
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        tree = ast.parse(path.read_text())
        stack = [(node, "") for node in tree.body]
        while stack:
            node, prefix = stack.pop()
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            qualified = f"{prefix}{node.name}"
            found[f"{name}.{qualified}"] = ast.get_docstring(node) or ""
            if isinstance(node, ast.ClassDef):
                stack += [(inner, f"{qualified}.") for inner in node.body]
    return found


def test_the_index_of_results_in_the_readme_is_true():
    """Each row: a result, and the function whose source names it."""
    readme = README.read_text()
    papers = re.split(r"^Paper \d: ", readme, flags=re.MULTILINE)[1:]
    functions = documented_functions()
    assert len(papers) == 3
    kinds = "Definition|Lemma|Claim|Theorem|Remark|Algorithms?|Section"
    kinds += "|Proposition|Appendix"
    for paper in papers:
        rows = re.findall(
            rf"^\| ((?:{kinds}) [^|`]+) \| `([\w.]+)` \|$", paper, re.MULTILINE
        )
        assert len(rows) >= 6
        for result, function in rows:
            assert function in functions, function
            docstring = " ".join(functions[function].split())
            for name in re.split(r", | and ", result):
                number = re.sub(r"s? ", " ", name.strip())
                last = number.split()[-1]
                assert last in docstring, f"{function} does not name {result}"
        cited = {result for result, _ in rows}
        assert len(cited) == len(rows), "a result has two homes"
