#include "distributed/comm/pipeline_order.h"
#include <algorithm>
#include "base/numbers.h"

namespace linnet {
namespace {
// `index` counts the passes of one direction from 0.
PipelinePass pass_at(const PipelineOrder& order, bool is_forward, int64_t index) {
  if (order.chunks == 1) return {is_forward, 0, index};
  const int64_t of_group = int64_t{order.ranks} * order.chunks, group = index / of_group, in_group = index % of_group;
  const auto chunk = static_cast<int>(in_group / order.ranks);
  return {is_forward, is_forward ? chunk : order.chunks - 1 - chunk, group * order.ranks + in_group % order.ranks};
}

int64_t pass_count(const PipelineOrder& order) { return order.micro_batches * order.chunks; }

// Forward passes that a rank computes before its first backward pass.
int64_t passes_ahead(const PipelineOrder& order, int rank) {
  const int64_t behind = order.ranks - 1 - rank;
  const int64_t ahead = order.chunks == 1 ? behind : 2 * behind + int64_t{order.chunks - 1} * order.ranks;
  return std::min(ahead, pass_count(order));
}

int stage_of(const PipelineOrder& order, int rank, const PipelinePass& pass) { return pass.chunk * order.ranks + rank; }
int rank_of(const PipelineOrder& order, int stage) {  // -1: there is no such stage
  return stage < 0 || stage == order.ranks * order.chunks ? -1 : stage % order.ranks;
}

// With several chunks, completes a last group that has fewer micro-batches than ranks.
PipelineOrder with_whole_groups(PipelineOrder order) {
  if (order.chunks > 1) order.micro_batches = round_up(order.micro_batches, order.ranks);
  return order;
}

// Leaves out the passes of missing micro-batches. This adds no waiting, since both ranks of a message leave it out.
std::vector<PipelineStep> without_missing(const std::vector<PipelineStep>& steps, int64_t micro_batches) {
  const auto is_missing = [&](const PipelinePass& pass) { return pass.micro >= micro_batches; };
  std::vector<PipelineStep> left;
  for (PipelineStep step : steps) {
    std::erase_if(step.sends, is_missing), std::erase_if(step.receives, is_missing);
    if (step.pass && is_missing(*step.pass)) step.pass.reset(), step.with_backward = false;
    if (step.pass || !step.sends.empty() || !step.receives.empty()) left.push_back(std::move(step));
  }
  return left;
}

class Steps {
 public:
  Steps(const PipelineOrder& order, int rank) : order_(order), rank_(rank) {}

  PipelinePass forward(int64_t index) const { return pass_at(order_, true, index); }
  PipelinePass backward(int64_t index) const { return pass_at(order_, false, index); }

  // Adds the pass's input to the next exchange.
  void receive(const PipelinePass& pass) {
    if (pipeline_sender(order_, rank_, pass) >= 0) next_.receives.push_back(pass);
  }
  // Computes without an exchange in between.
  void compute(const std::vector<PipelinePass>& passes) {
    std::vector<PipelinePass> made;
    for (const PipelinePass& pass : passes) {
      const bool is_last = stage_of(order_, rank_, pass) + 1 == order_.ranks * order_.chunks;
      if (!is_last || !pass.is_forward) made.push_back(pass);
      if (is_last && !pass.is_forward) continue;  // was computed with the forward pass
      next_.pass = pass;
      next_.with_backward = is_last;
      exchange();
    }
    for (const PipelinePass& pass : made)
      if (pipeline_receiver(order_, rank_, pass) >= 0) next_.sends.push_back(pass);
  }
  // Ends a step without a pass, if it has messages.
  void exchange() {
    if (next_.pass || !next_.sends.empty() || !next_.receives.empty()) steps_.push_back(next_);
    next_ = {};
  }
  std::vector<PipelineStep> finish() {
    exchange();
    return std::move(steps_);
  }

 private:
  const PipelineOrder order_;
  const int rank_;
  PipelineStep next_;
  std::vector<PipelineStep> steps_;
};

// Sends what a pass has made in one exchange with the request for what the next pass needs.
std::vector<PipelineStep> steps_of_one_chunk(const PipelineOrder& order, int rank) {
  Steps steps(order, rank);
  const int64_t ahead = passes_ahead(order, rank), all = pass_count(order);
  for (int64_t i = 0; i < ahead; ++i) {
    steps.receive(steps.forward(i));
    steps.compute({steps.forward(i)});
    steps.exchange();  // the next stage should not wait until this rank has the next micro-batch
  }
  for (int64_t i = 0; i < all; ++i) {
    if (i + ahead < all) {
      steps.receive(steps.forward(i + ahead));
      steps.compute({steps.forward(i + ahead)});
    }
    steps.receive(steps.backward(i));
    steps.compute({steps.backward(i)});
  }
  return steps.finish();
}

// A forward and a backward pass, then one exchange of their results for the inputs of the next two. Rank r is one pair
// behind rank r - 1, so that none waits while another computes.
std::vector<PipelineStep> interleaved_steps(const PipelineOrder& order, int rank) {
  Steps steps(order, rank);
  const int64_t ahead = passes_ahead(order, rank), all = pass_count(order);
  steps.receive(steps.forward(0));
  for (int64_t i = 0; i < ahead; ++i) {
    steps.compute({steps.forward(i)});
    if (i + 1 < all) steps.receive(steps.forward(i + 1));
  }
  if (ahead == all) steps.exchange();
  steps.receive(steps.backward(0));
  for (int64_t i = 0; i < all; ++i) {
    std::vector<PipelinePass> pair;
    if (i + ahead < all) pair.push_back(steps.forward(i + ahead));
    pair.push_back(steps.backward(i));
    steps.compute(pair);
    if (i + ahead + 1 < all) steps.receive(steps.forward(i + ahead + 1));
    if (i + 1 < all) steps.receive(steps.backward(i + 1));
  }
  return steps.finish();
}
}  // namespace

int pipeline_receiver(const PipelineOrder& order, int rank, const PipelinePass& pass) {
  return rank_of(order, stage_of(order, rank, pass) + (pass.is_forward ? 1 : -1));
}

int pipeline_sender(const PipelineOrder& order, int rank, const PipelinePass& pass) {
  return rank_of(order, stage_of(order, rank, pass) - (pass.is_forward ? 1 : -1));
}

std::vector<PipelinePass> pipeline_passes(const PipelineOrder& order, int rank) {
  std::vector<PipelinePass> passes;
  for (const PipelineStep& step : pipeline_steps(order, rank)) {
    if (step.pass) passes.push_back(*step.pass);
    if (step.with_backward) passes.push_back({false, step.pass->chunk, step.pass->micro});
  }
  return passes;
}

std::vector<PipelineStep> pipeline_steps(const PipelineOrder& order, int rank) {
  if (order.chunks == 1) return steps_of_one_chunk(order, rank);
  return without_missing(interleaved_steps(with_whole_groups(order), rank), order.micro_batches);
}

std::vector<int64_t> pipeline_slots(const PipelineOrder& order, int rank) {
  const auto chunks = static_cast<size_t>(order.chunks);
  std::vector<int64_t> begun(chunks), done(chunks), most(chunks);
  const auto begin = [&](const PipelinePass& pass) {
    const auto chunk = static_cast<size_t>(pass.chunk);
    if (!pass.is_forward) return;
    begun[chunk] = std::max(begun[chunk], pass.micro + 1);
    most[chunk] = std::max(most[chunk], begun[chunk] - done[chunk]);
  };
  for (const PipelineStep& step : pipeline_steps(order, rank)) {
    for (const PipelinePass& pass : step.receives) begin(pass);
    if (!step.pass) continue;
    begin(*step.pass);
    if (!step.pass->is_forward || step.with_backward) ++done[step.pass->chunk];
  }
  return most;
}
}  // namespace linnet
