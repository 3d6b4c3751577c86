//===- MegatronStages.cpp - Pipelines of Megatron ---------------------------------===//

#include "tools/judge/MegatronStages.h"

#include "planner/support/Format.h"

#include <algorithm>
#include <numeric>

namespace tbc::judge {

using planner::format;

static constexpr size_t longestLayout = 1 << 16;

/// Writes each `(TEXT)*N` and `X*N` of a layout N times. Returns nullopt for other forms. Source:
/// parse_str_to_list of megatron/core/transformer/pipeline_parallel_layer_layout.py.
static std::optional<std::string> expanded(const std::string &layout) {
  std::string text;
  for (size_t i = 0; i < layout.size();) {
    std::string part(1, layout[i++]);
    if (part == ",")
      continue;
    if (part == "(") {
      const size_t close = layout.find(')', i);
      if (close == std::string::npos)
        return std::nullopt;
      part = layout.substr(i, close - i);
      part.erase(std::remove(part.begin(), part.end(), ','), part.end());
      i = close + 1;
      if (i >= layout.size() || layout[i] != '*')
        return std::nullopt;
    }
    int64_t count = 1;
    if (i < layout.size() && layout[i] == '*') {
      for (count = 0, ++i; i < layout.size() && layout[i] >= '0' && layout[i] <= '9'; ++i)
        count = std::min<int64_t>(count * 10 + (layout[i] - '0'), longestLayout);
      if (count == 0)
        return std::nullopt;
    }
    for (int64_t n = 0; n < count && text.size() <= longestLayout; ++n)
      text += part;
  }
  if (text.size() > longestLayout || text.find_first_not_of("EtmL|") != std::string::npos)
    return std::nullopt;
  return text;
}

/// Reads --pipeline-model-parallel-layout.
static void readLayout(Setup &setup, int64_t layers) {
  const std::string flag = "--pipeline-model-parallel-layout ",
                    given = setup.text(Field::PipelineLayout);
  std::optional<std::string> text = expanded(given);
  if (!text)
    return setup.refuse("Value", flag + given +
                                     ": E, t, m and L stand for the embedding, layers, "
                                     "MTP and the loss, as in Ett|(ttt|)*2tL");
  if (text->find('E') != 0 || text->find_last_of('L') + 1 != text->size() ||
      std::count(text->begin(), text->end(), 'E') != 1 ||
      std::count(text->begin(), text->end(), 'L') != 1)
    return setup.refuse("Layers", flag + given +
                                      ": it begins with its only E and ends with its "
                                      "only L");
  std::vector<int64_t> chunks = {0};
  for (char c : *text) {
    if (c == '|')
      chunks.push_back(0);
    chunks.back() += c == 't';
  }
  const int64_t total = std::accumulate(chunks.begin(), chunks.end(), int64_t(0));
  if (layers > 0 && total != layers)
    setup.refuse("Layers", format("%s%s has %lld layers, and --num-layers is %lld", flag.c_str(),
                                  given.c_str(), (long long)total, (long long)layers));
  if (int64_t(chunks.size()) % setup.pp != 0)
    return setup.refuse("Schedule",
                        format("%s%s has %zu parts, no multiple of pp=%lld", flag.c_str(),
                               given.c_str(), chunks.size(), (long long)setup.pp));
  setup.virtualStages = int64_t(chunks.size()) / setup.pp;
  setup.chunkLayers = std::move(chunks);
}

/// Sets the layers of each chunk where the flags give them to whole stages.
static void divideLayers(Setup &setup, int64_t layers) {
  const int64_t pp = setup.pp, perStage = setup.virtualStages.value_or(1);
  const int64_t embedding = setup.has(Field::CountsEmbedding), loss = setup.has(Field::CountsLoss);
  const std::optional<int64_t> first = setup.number(Field::FirstLayers),
                               last = setup.number(Field::LastLayers);
  if (pp > layers + embedding + loss)
    return setup.refuse("Layers", format("%lld layers do not divide into %lld stages",
                                         (long long)layers, (long long)pp));
  std::vector<int64_t> stages(size_t(pp), 0);
  int64_t rest = layers + embedding + loss, open = pp;
  auto fix = [&](size_t stage, const std::optional<int64_t> &count) {
    if (count) {
      stages[stage] = *count;
      rest -= *count;
      --open;
    }
  };
  fix(0, first);
  fix(size_t(pp - 1), last);
  const char *given = "--decoder-first-pipeline-num-layers and "
                      "--decoder-last-pipeline-num-layers";
  if (open == 0 && rest != 0)
    return setup.refuse("Layers",
                        format("the layers of %s are not all %lld", given, (long long)layers));
  if (open > 0 && (rest < open || rest % open != 0))
    return setup.refuse(
        "Layers",
        format("%lld layers do not divide into %lld stages", (long long)rest, (long long)open) +
            (first || last ? std::string(" beside those of ") + given
                           : "; --pipeline-model-parallel-layout describes unequal ones"));
  for (int64_t &stage : stages)
    if (stage == 0)
      stage = rest / open;
  for (int64_t stage : stages)
    if (stage % perStage != 0)
      return setup.refuse("Layers", format("%lld layers of a stage do not divide into %lld chunks",
                                           (long long)stage, (long long)perStage));
  for (int64_t chunk = 0; chunk < pp * perStage; ++chunk)
    setup.chunkLayers.push_back(stages[size_t(chunk % pp)] / perStage);
  setup.chunkLayers.front() -= embedding;
  setup.chunkLayers.back() -= loss;
}

/// Sets the chunks of each stage from the layers of a chunk.
static void readChunkSize(Setup &setup, int64_t layers, int64_t perChunk) {
  const int64_t all =
      layers + int64_t(setup.has(Field::CountsEmbedding)) + int64_t(setup.has(Field::CountsLoss));
  if (layers == 0 || all % setup.pp != 0)
    return; // refused by divideLayers()
  if (all / setup.pp % perChunk != 0)
    return setup.refuse("Layers", format("%lld layers of a stage do not divide into chunks of %lld",
                                         (long long)(all / setup.pp), (long long)perChunk));
  setup.virtualStages = all / setup.pp / perChunk;
}

void readStages(Setup &setup) {
  const int64_t layers = setup.number(Field::Layers, 0);
  const std::optional<int64_t> perChunk = setup.number(Field::LayersPerVirtualStage);
  setup.virtualStages = setup.number(Field::VirtualStages);
  const bool hasLayout = setup.has(Field::PipelineLayout);
  if (int(perChunk.has_value()) + int(setup.virtualStages.has_value()) + int(hasLayout) > 1)
    setup.refuse("Schedule", "--num-layers-per-virtual-pipeline-stage, "
                             "--num-virtual-stages-per-pipeline-rank and "
                             "--pipeline-model-parallel-layout exclude each other");
  const bool isSplit = setup.has(Field::FirstLayers) || setup.has(Field::LastLayers);
  if (isSplit && (hasLayout || setup.has(Field::CountsEmbedding) || setup.has(Field::CountsLoss)))
    setup.refuse("Layers", "--decoder-first-pipeline-num-layers and "
                           "--decoder-last-pipeline-num-layers exclude a layout, and stages that "
                           "count the embedding or the loss");
  const size_t numProblems = setup.problems.size();
  if (hasLayout)
    readLayout(setup, layers);
  else if (perChunk)
    readChunkSize(setup, layers, *perChunk);
  if (setup.pp > 1)
    setup.schedule = "1f1b";
  if (setup.virtualStages.value_or(1) > 1) {
    setup.schedule = "interleaved";
    if (setup.pp == 1)
      setup.refuse("Schedule", "virtual stages without a pipeline");
  } else {
    setup.virtualStages.reset();
  }
  if (setup.pp > 1 && layers > 0 && !hasLayout && setup.problems.size() == numProblems)
    divideLayers(setup, layers);
  if (setup.pp == 1 || setup.problems.size() > numProblems)
    setup.chunkLayers.clear();
}

} // namespace tbc::judge
