#include "training/trainer/training_state.h"

namespace linnet {
namespace {
using Choices = std::vector<BlockChoice>;

// Replaces one choice for a layer by one that costs more work and frees more memory.
struct Upgrade {
  double work_per_byte;  // per freed byte
  uint64_t kind;         // of the layers
  BlockChoice choice;
};

struct Measured {
  BlockChoice choice;
  double work, bytes;  // added work, freed bytes
};

// Includes the cheap recomputation of single nodes, which follows anyway.
Measured measure(const Graph& traced, size_t block, const BlockChoice& choice, size_t count, const Backend& backend) {
  Choices choices(choice.what == Recomputation::kNone ? 0 : count);
  if (!choices.empty()) choices[block] = choice;
  const Graph graph = recompute(recompute_blocks(traced, choices), backend);
  return {choice, estimated_work(graph), static_cast<double>(saved_bytes(graph))};
}

// The lower convex hull of a layer's options by work per freed byte, cheapest first.
std::vector<Upgrade> upgrades_of(uint64_t kind, const std::vector<Measured>& options) {
  std::vector<Upgrade> upgrades;
  for (Measured now{{}, 0, 0};;) {
    std::optional<Upgrade> best;
    Measured next = now;
    for (const Measured& option : options) {
      if (option.bytes <= now.bytes || option.work <= now.work) continue;
      const double ratio = (option.work - now.work) / (option.bytes - now.bytes);
      if (!best || ratio < best->work_per_byte) best = Upgrade{ratio, kind, option.choice}, next = option;
    }
    if (!best) return upgrades;
    upgrades.push_back(*best);
    now = next;
  }
}

// Upgrades of all kinds of layers, cheapest first. Each kind is measured once, at its first layer.
std::vector<Upgrade> find_upgrades(const Graph& traced, const std::vector<Block>& blocks, const Backend& backend) {
  std::map<uint64_t, std::vector<Measured>> kinds;
  const Measured none = measure(traced, 0, {}, blocks.size(), backend);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto [entry, is_new] = kinds.try_emplace(blocks[i].kind);
    if (!is_new) continue;
    Choices options{{.what = Recomputation::kBlock}};
    for (const std::vector<int>& kept : kept_parts(traced, blocks[i]))
      options.push_back({.what = Recomputation::kPart, .kept = kept});
    for (const BlockChoice& option : options) {
      const Measured with = measure(traced, i, option, blocks.size(), backend);
      entry->second.push_back({option, with.work - none.work, none.bytes - with.bytes});
    }
  }
  std::vector<Upgrade> upgrades;
  for (const auto& [kind, options] : kinds) std::ranges::copy(upgrades_of(kind, options), std::back_inserter(upgrades));
  std::ranges::stable_sort(upgrades, {}, &Upgrade::work_per_byte);
  return upgrades;
}

// Every `length`-th layer of a list keeps its input; the others are recomputed from there.
Choices chains(const std::vector<Block>& blocks, size_t length) {
  Choices choices(blocks.size(), {.what = Recomputation::kBlock});
  const auto list_of = [](const Block& block) { return block.path.substr(0, block.path.rfind('.') + 1); };
  for (size_t i = 1, position = 1; i < blocks.size(); ++i, ++position) {
    if (list_of(blocks[i]) != list_of(blocks[i - 1])) position = 0;
    choices[i].joined = position % length != 0;
  }
  return choices;
}

struct Ladder {
  std::vector<Choices> steps;
  std::vector<size_t> ends;  // the steps after which all layers of a kind have the same choice
};

// First layers first: their backward pass is last, when most saved activations are freed, and does not add to the peak.
Ladder ladder(const Graph& traced, const std::vector<Block>& blocks, const Backend& backend) {
  Ladder made{.steps = {Choices(blocks.size())}, .ends = {0}};
  std::vector<Choices>& steps = made.steps;
  for (const Upgrade& upgrade : find_upgrades(traced, blocks, backend)) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i].kind != upgrade.kind) continue;
      steps.push_back(steps.back());
      steps.back()[i] = upgrade.choice;
    }
    made.ends.push_back(steps.size() - 1);
  }
  for (const size_t length : {2, 3, 4, 6, 8})
    if (2 * length <= blocks.size()) made.ends.push_back(steps.size()), steps.push_back(chains(blocks, length));
  return made;
}

class Search {
 public:
  Search(const Graph& traced, const PassOptions& passes, const PlanOptions& planning, const FitsMemory& fits)
      : traced_(traced), passes_(passes), planning_(planning), fits_(fits),
        ladder_(ladder(traced, find_blocks(traced), *passes.backend)) {
    passes_.verify = false;
  }

  Fit run() {
    // No plan is below its bound: bisect for the first step whose bound fits, then try plans from there.
    const std::vector<size_t> steps = numbers_below<size_t>(ladder_.steps.size());
    const auto first = std::ranges::partition_point(steps, [&](size_t i) { return !fits_(size(i, false)); });
    for (const size_t i : std::span(first, steps.end()))
      if (const PlanSize placed = size(i, true); fits_(placed)) return result(i, placed, true);
    // The bounds need not fall from each step to the next.
    const size_t least = smallest();
    const PlanSize placed = size(least, true);
    return result(least, placed, fits_(placed));
  }

 private:
  // The first step within a little of the smallest. Tries only `ends`: each step costs a whole optimization, and a
  // choice for half of the layers rarely takes less than for none or for all.
  size_t smallest() const {
    const std::vector<size_t> bytes = mapped(ladder_.ends, [&](size_t end) { return size(end, false).bytes(); });
    const size_t least = *std::ranges::min_element(bytes);
    const auto first = std::ranges::find_if(bytes, [&](size_t b) { return b <= least + least / 100; });
    return ladder_.ends[first - bytes.begin()];
  }

  Graph optimized(size_t step) const {
    PassOptions passes = passes_;
    passes.blocks = ladder_.steps[step];
    return optimize(traced_.clone(), passes);
  }

  PlanSize size(size_t step, bool placed) const {
    return plan_size(optimized(step), *passes_.backend, planning_, placed);
  }

  Fit result(size_t step, const PlanSize& size, bool fits) const {
    const double none = estimated_work(optimized(0));
    return {fits, ladder_.steps[step], estimated_work(optimized(step)) / none - 1, size.bytes()};
  }

  const Graph& traced_;
  PassOptions passes_;
  const PlanOptions& planning_;
  const FitsMemory& fits_;
  const Ladder ladder_;
};
}  // namespace

std::string Fit::text() const {
  std::map<Recomputation, size_t> counts;
  size_t joined = 0;
  for (const BlockChoice& choice : choices) ++counts[choice.what], joined += choice.joined;
  std::string text;
  const auto add = [&](Recomputation what, const char* before) {
    if (counts[what] > 0) text += (text.empty() ? "" : ", ") + std::string(before) + std::to_string(counts[what]);
  };
  add(Recomputation::kBlock, "");
  add(Recomputation::kAttention, "the attention of ");
  add(Recomputation::kPart, "parts of ");
  if (text.empty()) return "";
  text = "computes " + text + " of " + std::to_string(choices.size()) + " layers again";
  if (joined > 0) text += ", in chains that save " + std::to_string(choices.size() - joined) + " inputs";
  return text + ", about " + std::to_string(std::lround(100 * extra_work)) + "% more work";
}

Fit fit_by_mode(const Graph& traced, const PassOptions& passes, RecomputeMode mode) {
  Fit fit;
  if (mode != RecomputeMode::kAttention && mode != RecomputeMode::kBlock) return fit;
  const Recomputation what = mode == RecomputeMode::kBlock ? Recomputation::kBlock : Recomputation::kAttention;
  fit.choices.assign(find_blocks(traced).size(), {.what = what});
  PassOptions with = passes;
  with.blocks = fit.choices;
  const double none = estimated_work(optimize(traced.clone(), passes));
  fit.extra_work = estimated_work(optimize(traced.clone(), with)) / none - 1;
  return fit;
}

Fit fit_to_memory(const Graph& traced, const PassOptions& passes, const PlanOptions& planning, const FitsMemory& fits) {
  return Search(traced, passes, planning, fits).run();
}
}  // namespace linnet
