//===- Trainer.cpp - Keywords of trainers of transformers and Lightning -----===//

#include "tools/judge/Trainer.h"

#include "tools/judge/Entries.h"

namespace tbc::judge {

static const std::vector<Word> words = {{"per_device_train_batch_size", Field::MicroBatch},
                                        {"gradient_accumulation_steps", Field::Accumulation},
                                        {"bf16", Field::Bf16},
                                        {"fp16", Field::F16},
                                        {"fsdp", Field::Sharding},
                                        {"gradient_checkpointing", Field::Recompute},
                                        {"accumulate_grad_batches", Field::Accumulation},
                                        {"batch_size", Field::MicroBatch},
                                        {"devices", Field::PerNode},
                                        {"num_nodes", Field::Nodes},
                                        {"strategy", Field::Sharding},
                                        {"precision", Field::Precision}};

static const std::vector<std::string> ignored = {"output_dir",
                                                 "learning_rate",
                                                 "num_train_epochs",
                                                 "max_steps",
                                                 "weight_decay",
                                                 "warmup_steps",
                                                 "max_grad_norm",
                                                 "optim",
                                                 "logging_steps",
                                                 "save_steps",
                                                 "seed",
                                                 "tf32",
                                                 "accelerator",
                                                 "max_epochs",
                                                 "gradient_clip_val",
                                                 "gradient_clip_algorithm",
                                                 "fsdp_config",
                                                 "report_to"};

/// Values of fsdp= and strategy= with their ZeRO form.
struct Strategy {
  const char *word;
  int zero;
  bool keepsGathered;
  const char *executor = ""; // as Setup::executor
};
static const Strategy strategies[] = {{"full_shard", 3, false},
                                      {"shard_grad_op", 3, true},
                                      {"fsdp", 3, false},
                                      {"no_shard", 0, false},
                                      {"ddp", 0, false},
                                      {"deepspeed_stage_1", 1, false, "deepspeed"},
                                      {"deepspeed_stage_2", 2, false, "deepspeed"},
                                      {"deepspeed_stage_3", 3, false, "deepspeed"}};

Result<Setup> readTrainer(const std::string &text, const std::string &source) {
  auto entries = keywordEntries(text, source);
  if (!entries)
    return entries.error();
  Setup setup;
  setup.kind = "trainer";
  readWords(setup, *entries, words, ignored);
  setup.microBatch = setup.number(Field::MicroBatch);
  setup.accumulation = setup.number(Field::Accumulation, 1);
  if (auto perNode = setup.number(Field::PerNode))
    setup.ranks = *perNode * setup.number(Field::Nodes, 1);
  std::string strategy = setup.text(Field::Sharding);
  strategy = strategy.substr(0, strategy.find(' ')); // "full_shard auto_wrap"
  setup.zero = 0;
  bool isKnown = strategy.empty();
  for (const Strategy &known : strategies)
    if (strategy == known.word) {
      setup.zero = known.zero;
      setup.keepGathered = known.keepsGathered;
      setup.executor = known.executor;
      isKnown = true;
    }
  if (!isKnown)
    setup.refuse("Zero", "there is no strategy " + strategy);
  if (setup.isOn(Field::Bf16) && setup.isOn(Field::F16))
    setup.refuse("Precision", "bf16 and fp16 are both on");
  std::string precision = setup.text(Field::Precision);
  bool isBf16 = setup.isOn(Field::Bf16) || precision.rfind("bf16", 0) == 0;
  bool isF16 = setup.isOn(Field::F16) || precision.rfind("16", 0) == 0;
  setup.precision = isBf16 ? "bf16" : isF16 ? "f16" : "f32";
  setup.recompute = setup.isOn(Field::Recompute) ? "full" : "none";
  return setup;
}

} // namespace tbc::judge
