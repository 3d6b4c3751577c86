//===- RunOptions.cpp - The flags of tbc run ---------------------------------===//

#include "tools/tbc-run/RunOptions.h"

#include "tools/tbc-run/NumberFlags.h"
#include "tools/tbc-run/WordFlags.h"

#include <CLI/CLI.hpp>

namespace tbc::cli {

std::shared_ptr<RunOptions> addRunOptions(CLI::App &command) {
  auto options = std::make_shared<RunOptions>();
  train::TrainOptions &train = options->train;
  train.data.sources = {"synthetic"};
  command.add_option("program", options->program, "Folder written by tbc compile")->required();
  command.option_defaults()->group("Ranks");
  command
      .add_option("--nproc", options->numProcesses,
                  "Start so many ranks on this machine (default: the launcher's environment, else "
                  "as many as the program has)")
      ->check(between(1, 1024));
  command.add_option("--init", options->init,
                     "Where ranks meet: env://, tcp://HOST:PORT or file://PATH");
  command.add_option("--rank", options->rank, "With --init: this process' rank");
  command.add_option("--ranks", options->numRanks, "With --init: how many there are");
  command.add_option("--listen", options->host,
                     "Address on which this rank is reached (default: the one on the way to the "
                     "meeting point)");
  command
      .add_option("--timeout", options->timeoutSeconds,
                  "Longest wait for another rank or a kernel, seconds (default: 30, on GPUs 600)")
      ->check(between(1, 86400));
  command
      .add_option("--connect-timeout", options->connectTimeoutSeconds,
                  "The same while ranks connect and, on GPUs, in the first step (default: that of "
                  "--timeout, on GPUs at least 600)")
      ->check(between(1, 86400));
  command
      .add_option("--communicator", options->communicator,
                  "gloo, or nccl between GPUs (default: nccl where the program is for GPUs)")
      ->transform(oneOf({"gloo", "nccl"}));
  command.option_defaults()->group("How long");
  CLI::Option *steps = command.add_option("--steps", train.steps, "Train up to this step")
                           ->check(atLeast(1))
                           ->capture_default_str();
  command
      .add_option("--epochs", train.epochs,
                  "Train to the end of so many epochs: global batches that the data fills")
      ->check(atLeast(1))
      ->excludes(steps);
  command.add_flag("--fast-dev-run", options->isDevRun,
                   "Try it out: one step, one batch of evaluation, no log, no checkpoint");
  command.option_defaults()->group("Evaluation");
  command
      .add_option("--eval-data", train.evaluation.sources,
                  "Evaluate on this data, named as for --data: the loss of forward blocks alone")
      ->take_all();
  command
      .add_option("--eval-every", train.evaluation.every,
                  "Evaluate after every so many steps (default: after the last one)")
      ->check(atLeast(0));
  command
      .add_option("--eval-batches", train.evaluation.batches,
                  "Evaluate on so many global batches (default: all that the data fills)")
      ->check(atLeast(0));
  command.option_defaults()->group("Looking closely");
  command.add_option("--profile", train.profile.file,
                     "Write a Chrome trace of one step, all ranks on one clock, to this file");
  command.add_option("--profile-step", train.profile.step, "Which step (default: the second one)")
      ->check(atLeast(1));
  command
      .add_option("--on-nan", options->onNan,
                  "A step whose loss is NaN or infinite: stop, with exit code 11; skip it, its "
                  "update is applied on no rank")
      ->transform(oneOf({"stop", "skip"}))
      ->capture_default_str();
  command.add_flag("--detect-anomaly", train.detectsAnomalies,
                   "Stop at the first op that makes a NaN or an infinity, and name it; slow");
  command.add_flag("--check-memory", train.checksMemory,
                   "At the end, the memory that each rank was predicted to take, was planned to "
                   "take, and took");
  command.add_flag("-v,--verbose", options->isVerbose, "At the end, what the kernels took, by op");
  command.option_defaults()->group("Data and weights");
  command
      .add_option("--data", train.data.sources,
                  "synthetic; a file of raw tokens; or NAME=FILE.npy for every input")
      ->take_all();
  command.add_option("--token-bits", options->tokenBits, "Width of raw tokens")
      ->transform(oneOf({"16", "32"}))
      ->capture_default_str();
  command.add_option("--data-seed", train.data.seed, "Seed of the order of samples")
      ->capture_default_str();
  command.add_flag("--no-shuffle", options->isOrdered, "Take samples in their order");
  command
      .add_option(
          "--init-weights", options->initWeights,
          "Start from random weights of this seed, or from safetensors: a file, an index of "
          "shards, or a folder of Hugging Face; not from the model's file")
      ->check([](const std::string &text) {
        return text.empty() ? std::string("an empty text is no seed and no path") : std::string();
      })
      ->type_name("SEED|PATH");
  command.option_defaults()->group("Learning rate");
  command.add_option("--lr", train.learningRate.peak, "Learning rate")
      ->check(notNegative())
      ->capture_default_str();
  command.add_option("--lr-schedule", options->schedule, "constant, linear or cosine")
      ->capture_default_str();
  command.add_option("--lr-min", train.learningRate.least, "Where linear and cosine end")
      ->check(notNegative())
      ->capture_default_str();
  command
      .add_option("--warmup-steps", train.learningRate.warmupSteps,
                  "Steps in which the learning rate rises to its full value")
      ->check(atLeast(0))
      ->capture_default_str();
  command
      .add_option("--lr-steps", options->lrSteps,
                  "Step at which linear and cosine end (default: the last one)")
      ->check(atLeast(0));
  command.add_option("--scale-lr", options->lrGrowth,
                     "linear:BATCH or sqrt:BATCH: --lr and --lr-min are for a global batch of so "
                     "many samples, and grow with the program's, or with its root");
  command.option_defaults()->group("Arithmetic and kernels");
  command
      .add_option("--arith", options->arith,
                  "native; f64; or exact numbers, to prove the parallel program: residue, modulo "
                  "2^61 - 1; residue251, modulo 251, in the memory and messages of a native run")
      ->transform(oneOf({"native", "f64", "residue", "residue251"}))
      ->capture_default_str();
  command
      .add_option("--kernels", options->kernels,
                  "native: fast ones; reference: each op by its plain meaning, slow")
      ->transform(oneOf({"native", "reference"}))
      ->capture_default_str();
  command.add_flag("--self-check", options->checksItself,
                   "Compute the first step by the reference kernels too, and stop at the first "
                   "kernel that differs; slow");
  command.add_flag("--deterministic", options->isDeterministic,
                   "On GPUs too, the same numbers bit for bit on every run; slower there");
  command.add_flag("--benchmark", options->isBenchmark,
                   "On GPUs, the first step times a few ways to do each matrix product and takes "
                   "the fastest; which that is, and so the last bits, may differ from run to run");
  command
      .add_option(
          "--matmul-precision", options->matmulPrecision,
          "On GPUs, what matrices are multiplied in: own, their own types; fp8, rounded to "
          "8 bits right before, where the GPU has that and shapes allow it (default: as the "
          "plan was made)")
      ->transform(oneOf({"own", "fp8"}));
  command
      .add_option("--cuda-graphs", options->cudaGraphs,
                  "Launch each step on a GPU as one graph: auto, where that can be; on, else an "
                  "error; off")
      ->transform(oneOf({"auto", "on", "off"}))
      ->capture_default_str();
  command
      .add_option("--threads", options->threads,
                  "Threads of a rank (default: the machine's cores / its ranks)")
      ->check(between(1, 4096));
  command.option_defaults()->group("Communication of gradients");
  command
      .add_option("--comm-dtype", options->commDtype,
                  "What gradients of f32 travel as when they are summed over the data's axes: f32, "
                  "or bf16, which halves the bytes and rounds")
      ->transform(oneOf({"f32", "bf16"}))
      ->capture_default_str();
  command.add_option("--compress-gradients", options->compression,
                     "topk:SHARE: of the same gradients send only this share of each tensor's "
                     "elements, the largest, and keep the rest for the next step");
  command.option_defaults()->group("Logs and checkpoints");
  command.add_option("--log", train.logFile, "Write one JSON object per step to this file");
  command.add_flag("--json", options->printsJson,
                   "Print the objects of --log in place of text; other text goes to stderr");
  command.add_option("--tensorboard", train.eventFolder,
                     "Write an event file for TensorBoard into this folder");
  command.add_option("--checkpoint", train.checkpoint.folder,
                     "Folder of checkpoints: one at the end, and one when stopped");
  command
      .add_option("--every", train.checkpoint.every, "With --checkpoint: one every so many steps")
      ->check(atLeast(0));
  command.add_option("--keep", train.checkpoint.keep, "Checkpoints to keep, the latest; 0: all")
      ->check(atLeast(0))
      ->capture_default_str();
  command.add_flag("--async-checkpoint", train.checkpoint.isAsync,
                   "Write checkpoints while the next steps run; takes a copy of what they hold");
  command.add_flag("--resume", train.checkpoint.resumes,
                   "Go on from the latest checkpoint, if there is one");
  return options;
}

} // namespace tbc::cli
