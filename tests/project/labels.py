"""Checks that every constraint of an op has a test, by its label."""

import re

_DEFINITION = re.compile(r"(?ms)^(?:def|class) (\w+).*?(?=^(?:def|class) |\Z)")
_MNEMONIC = re.compile(r'<(?:Tbc_Dialect, )?"([a-z0-9_]+)"')


def labels(tree):
    """An op's description lists its constraints as (C1), (C2) and so on. Each needs a function of
    tests/ir/*.mlir that breaks it. Example: `attention` has (C5), so there is @attention_c5 or
    @attention_c5_window.
    """
    tests = "\n".join(tree.text(path) for path in tree.ending(".mlir") if path.startswith("tests/ir/"))
    functions = set(re.findall(r"func\.func @(\w+)", tests))
    complaints = []
    for path in tree.ending(".td"):
        for definition in _DEFINITION.finditer(tree.text(path)):
            numbers = sorted(set(re.findall(r"\(C(\d+)\)", definition.group(0))), key=int)
            mnemonic = _MNEMONIC.search(definition.group(0))
            if numbers and not mnemonic:
                complaints.append(f"{path}: {definition.group(1)} has constraints and no mnemonic")
                continue
            for number in numbers:
                name = f"{mnemonic.group(1)}_c{number}"
                if not any(function == name or function.startswith(name + "_") for function in functions):
                    complaints.append(f"{path}: no test breaks (C{number}) of {mnemonic.group(1)}: tests/ir has no @{name}")
    return complaints
