"""usage: run.py --tbc build/bin/tbc [--seeds A:B] [--jobs N] [--resume FILE] [--keep FOLDER] [--meshes N] [--quiet]
              [--table FOLDER]

Trains random models with tbc and with PyTorch's autograd and compares losses, norms, moments (so:
every gradient), parameters and running statistics of three steps. Each seed is run serially and on
--meshes meshes of 2 to 4 ranks, with SGD, Adam and AdamW in turn, by native and compiled kernels.

- One JSON line per seed goes to stdout, and to --resume FILE; seeds in that file are skipped.
- --keep FOLDER keeps the files of seeds that differ.
- --table FOLDER writes the models of these seeds with PyTorch's losses and norms. table_test.py
  compares with them without PyTorch.

Example:
    python3 tests/oracle/run.py --tbc build/bin/tbc --seeds 0:200 --jobs 2 --resume oracle.jsonl

Exit code: 0 all agree, 1 some differ or fail, 2 usage, 77 PyTorch is missing (prints so).
"""

import argparse
import itertools
import json
import multiprocessing
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

SKIPPED = 77

try:
    import torch

    import compare
    import models
    import referee
    import subject
except ImportError as error:
    print(f"skipped: {error}; install Debian's python3-torch and run /usr/bin/python3")
    sys.exit(SKIPPED)

# Mesh, ranks, data ranks.
SERIAL = ("dp=1", 1, 1)
MESHES = [("dp=2", 2, 2), ("fsdp=2", 2, 2), ("tp=2", 2, 1), ("pp=2", 2, 1), ("dp=4", 4, 4), ("dp=2,tp=2", 4, 2),
          ("fsdp=2,tp=2", 4, 2), ("dp=2,fsdp=2", 4, 4), ("pp=2,dp=2", 4, 2), ("tp=2,pp=2", 4, 1)]


def runs_of(seed, count):
    """Returns the (mesh, optimizer) runs of a seed: `count` meshes beside the serial run, with the
    optimizers in turn.
    """
    first = seed * 3 % len(MESHES)
    meshes = [SERIAL, *itertools.islice(itertools.cycle(MESHES[first:] + MESHES[:first]), 0, 2 * count, 2)]
    kinds = referee.optimizers(seed)
    return [(mesh, kinds[(seed + i) % len(kinds)]) for i, mesh in enumerate(meshes)]


def micro_batch(model, data_ranks):
    """Returns the samples per micro-batch: the rank's whole share if statistics run over the batch,
    else one.
    """
    return models.BATCH // data_ranks if model.has_batch_norm else 1


def run_seed(seed, program, count, keep, cache, table):
    """Returns the JSON line of a seed."""
    begin = time.time()
    line = {"seed": seed, "result": "equal", "runs": []}
    folder = Path(tempfile.mkdtemp(prefix=f"oracle-{seed}-"))
    try:
        model = models.make(seed)
        line["layers"] = model.layers
        inputs, labels = referee.data(model, seed)
        noise = [referee.data(model, (seed + 1) * 1000 + i) for i in range(referee.NOISE_SEEDS - 1)]
        referee.export(model, inputs, folder / "model.onnx")
        compare.np.save(folder / "x.npy", inputs)
        compare.np.save(folder / "labels.npy", labels)
        tbc = subject.Tbc(program, folder, cache)
        constants = referee.constants(model)
        frozen = tbc.trained(constants)
        if frozen:
            line["frozen"] = frozen  # constants that tbc takes for parameters
        judged, entries = {}, []
        for mesh, optimizer in runs_of(seed, count):
            if optimizer not in judged:
                exact, pairs = referee.judge(model, optimizer, inputs, labels, noise)
                judged[optimizer] = exact, compare.bounds(exact, pairs)
                again = partial(wider, model, optimizer, inputs, labels, exact, pairs)
                line.setdefault("loss", float(f"{float(exact['loss 1']):.7g}"))
                line.setdefault("norm", float(f"{float(exact['norm 1']):.7g}"))
            one = run_one(tbc, model, mesh, optimizer, judged[optimizer], frozen, again)
            entries.append(entry_of(model, mesh, optimizer, judged[optimizer]))
            line["runs"].append(one)
            if one["result"] != "equal" and line["result"] in ("equal", "refused"):
                line["result"] = one["result"]
        if table:
            write_entry(Path(table), seed, model, inputs, labels, constants, entries, folder)
    except subject.Refused as error:
        line["result"], line["what"] = "refused", str(error)
    except Exception as error:  # of the generator or the export: a seed never ends the run
        line["result"], line["what"] = "failed", f"{type(error).__name__}: {error}"[:1500]
    line["seconds"] = round(time.time() - begin, 2)
    if line["result"] == "equal" or not keep:
        shutil.rmtree(folder)
    else:
        kept = Path(keep) / f"seed-{seed}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.move(folder, kept)
        line["files"] = str(kept)
    return line


def wider(model, optimizer, inputs, labels, exact, pairs):
    """The record, and bounds that know how sensitive these very inputs are."""
    return exact, compare.bounds(exact, pairs + referee.perturbed(model, optimizer, inputs, labels, exact))


def run_one(tbc, model, mesh, optimizer, judged, frozen, again):
    """The entry of one run. One that is beyond its bound is judged a second time, by `again`; its entry says so."""
    name, ranks, data_ranks = mesh
    one = {"mesh": name, "optimizer": optimizer.name, "result": "equal"}
    try:
        lines = tbc.train(name, ranks, models.BATCH, micro_batch(model, data_ranks), optimizer.flags(), optimizer.rate,
                          loss_name(model), frozen)
        record = tbc.record(lines)
        try:
            one["worst"] = round(compare.check(*judged, record), 3)
        except compare.Difference as error:
            one["first"] = str(error)
            one["worst"] = round(compare.check(*again(), record), 3)
    except compare.Difference as error:
        one["result"], one["what"] = "differs", str(error)
    except subject.Refused as error:
        one["result"], one["what"] = "refused", str(error)
    except subject.Failed as error:
        one["result"], one["what"] = "failed", str(error)
    return one


def loss_name(model):
    return "cross-entropy" if model.classes else "mse"


# -- The table -----------------------------------------------------------------------------------------


def entry_of(model, mesh, optimizer, judged):
    """Returns a run's entry of the table: flags, and losses and norms with their bounds."""
    name, ranks, data_ranks = mesh
    exact, limits = judged
    wanted = {key: [float(f"{float(exact[key]):.9g}"), float(f"{limits[key]:.3g}")] for key in exact
              if key.startswith(("loss ", "norm "))}
    return {"mesh": name, "ranks": ranks, "micro_batch": micro_batch(model, data_ranks), "flags": optimizer.flags(),
            "rate": optimizer.rate, "wanted": wanted}


def write_entry(table, seed, model, inputs, labels, constants, entries, folder):
    table.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "model.onnx", table / f"{seed}.onnx")
    entry = {"seed": seed, "layers": model.layers, "batch": models.BATCH, "input_shape": inputs.shape,
             "vocabulary": model.vocabulary, "label_shape": labels.shape, "classes": model.classes,
             "loss": loss_name(model), "constants": constants, "runs": entries}
    (table / f"{seed}.json").write_text(json.dumps(entry, indent=1) + "\n", encoding="utf-8")


# -- All seeds -----------------------------------------------------------------------------------------


def work(task):
    torch.set_num_threads(1)
    return run_seed(*task)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tbc", required=True, help="the program")
    parser.add_argument("--seeds", default="0:200", help="A:B, the seeds from A to B - 1 (default: 0:200)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--meshes", type=int, default=2, help="meshes per seed beside the serial run (default: 2)")
    parser.add_argument("--resume", help="file of lines: its seeds are done, and new ones are added")
    parser.add_argument("--quiet", action="store_true", help="print no lines of seeds that agree")
    parser.add_argument("--table", help="folder to write models and results to")
    parser.add_argument("--keep", help="folder for the files of seeds that do not agree")
    options = parser.parse_args()
    try:
        first, last = (int(part) for part in options.seeds.split(":"))
    except ValueError:
        parser.error(f"--seeds wants A:B, not {options.seeds}")
    if not Path(options.tbc).is_file():
        parser.error(f"there is no program {options.tbc}")
    return options, range(first, last)


def main():
    options, seeds = parse()
    done = {}
    if options.resume and Path(options.resume).exists():
        for text in Path(options.resume).read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            done[line["seed"]] = line
    cache = tempfile.mkdtemp(prefix="oracle-cache-")
    tasks = [(seed, Path(options.tbc).resolve(), options.meshes, options.keep, cache, options.table)
             for seed in seeds if seed not in done]
    lines = [done[seed] for seed in seeds if seed in done]
    log = open(options.resume, "a", encoding="utf-8") if options.resume else None
    with multiprocessing.get_context("fork").Pool(max(1, options.jobs)) as pool:
        for line in pool.imap_unordered(work, tasks):
            text = json.dumps(line)
            if line["result"] != "equal" or not options.quiet:
                print(text, flush=True)
            if log:
                log.write(text + "\n")
                log.flush()
            lines.append(line)
    shutil.rmtree(cache, ignore_errors=True)
    sys.exit(summarize(lines, options))


def summarize(lines, options):
    """Prints counts and disagreements; returns the exit code."""
    counts = {}
    refusals = sum(one["result"] == "refused" for line in lines for one in line["runs"])
    runs = sum(len(line["runs"]) for line in lines)
    for line in sorted(lines, key=lambda line: line["seed"]):
        counts[line["result"]] = counts.get(line["result"], 0) + 1
        if line["result"] in ("differs", "failed"):
            print(f"seed {line['seed']}: {' > '.join(line.get('layers', []))}", file=sys.stderr)
            for one in [line, *line["runs"]]:
                if "what" in one and one["result"] != "refused":
                    print(f"  {one.get('mesh', '')} {one.get('optimizer', '')}: {one['what']}", file=sys.stderr)
            print(f"  again: /usr/bin/python3 tests/oracle/run.py --tbc {options.tbc} --meshes {options.meshes} "
                  f"--keep /tmp/oracle --seeds {line['seed']}:{line['seed'] + 1}", file=sys.stderr)
    summary = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
    print(f"{len(lines)} seeds: {summary}; {runs} runs, {refusals} of them refused with a reason", file=sys.stderr)
    # A refusal is an answer, but an oracle that is refused most of the time proves little.
    bad = sum(line["result"] in ("differs", "failed") for line in lines)
    return 1 if bad or 10 * refusals > 3 * max(1, runs) else 0


if __name__ == "__main__":
    main()
