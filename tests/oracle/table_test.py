"""usage: table_test.py TBC

Runs tbc on the models of table/ and compares losses and gradient norms of three steps with
PyTorch's autograd in f64, within the bounds derived by run.py. Needs neither PyTorch nor NumPy. To write the
table:

    /usr/bin/python3 tests/oracle/run.py --tbc build/bin/tbc --seeds A:B --table tests/oracle/table
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import samples
import subject

TABLE = Path(__file__).parent / "table"


def differences(tbc, entry):
    """Yields the differences in the runs of an entry, one sentence each."""
    frozen = tbc.trained(entry["constants"])
    for run in entry["runs"]:
        lines = tbc.train(run["mesh"], run["ranks"], entry["batch"], run["micro_batch"], run["flags"], run["rate"],
                          entry["loss"], frozen)
        if len(lines) != subject.STEPS:
            yield f"{run['mesh']}: {len(lines)} steps, not {subject.STEPS}"
        for line in lines:
            for key, have in (("loss", line["loss"]), ("norm", line.get("gradient_norm"))):
                want, bound = run["wanted"][f"{key} {line['step']}"]
                if have is None or not abs(have - want) <= bound:
                    yield f"{run['mesh']}: {key} {line['step']} is {have}, PyTorch's {want}, bound {bound}"


def check(program, path, cache):
    entry = json.loads(path.read_text(encoding="utf-8"))
    folder = Path(tempfile.mkdtemp(prefix="oracle-table-"))
    shutil.copy(path.with_suffix(".onnx"), folder / "model.onnx")
    inputs, labels = samples.batches(entry["seed"], entry["input_shape"], entry["vocabulary"], entry["label_shape"], entry["classes"])
    samples.write_npy(folder / "x.npy", entry["input_shape"], inputs, not entry["vocabulary"])
    samples.write_npy(folder / "labels.npy", entry["label_shape"], labels, not entry["classes"])
    try:
        found = list(differences(subject.Tbc(program, folder, cache), entry))
    except (subject.Refused, subject.Failed) as error:
        found = [str(error)]
    shutil.rmtree(folder)
    return [f"seed {entry['seed']} ({' > '.join(entry['layers'])}) on {text}" for text in found]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    entries = sorted(TABLE.glob("*.json"))
    if not entries:
        sys.exit(f"{TABLE} holds no entries")
    cache = tempfile.mkdtemp(prefix="oracle-cache-")
    found = [text for path in entries for text in check(Path(sys.argv[1]).resolve(), path, cache)]
    shutil.rmtree(cache, ignore_errors=True)
    print("\n".join(found) or f"{len(entries)} models agree with the table")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
