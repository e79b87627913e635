#include "distributed/comm/pipeline_order.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <string>

namespace linnet {
namespace {
std::string text(const PipelinePass& pass) {
  return (pass.is_forward ? "F" : "B") + std::to_string(pass.chunk) + "." + std::to_string(pass.micro);
}

// Stages with messages that arrive only when both sides have come to them (MPI's rendezvous), in their order between
// two ranks.
class Rendezvous {
 public:
  explicit Rendezvous(const PipelineOrder& order) : order_(order), ranks_(static_cast<size_t>(order.ranks)) {
    for (int rank = 0; rank < order.ranks; ++rank)
      ranks_[static_cast<size_t>(rank)].steps = pipeline_steps(order, rank);
  }

  // Runs until nobody can go on. Whether all have ended.
  bool run() {
    for (bool any = true; any;) {
      any = false;
      for (int rank = 0; rank < order_.ranks; ++rank)
        while (advance(rank)) any = true;
    }
    return std::ranges::all_of(ranks_, [](const State& state) { return state.next == state.steps.size(); });
  }

 private:
  struct State {
    std::vector<PipelineStep> steps;
    size_t next = 0;
    bool has_asked = false;  // the messages of the next step are posted
    size_t open = 0;         // of which so many have not passed
    std::set<std::string> arrived, computed;
  };
  struct Posted {
    int rank;
    int stage;
    PipelinePass pass;
  };

  bool advance(int rank) {
    State& state = ranks_[static_cast<size_t>(rank)];
    if (state.next == state.steps.size()) return false;
    const PipelineStep& step = state.steps[state.next];
    if (!state.has_asked) {
      state.has_asked = true;
      state.open = step.sends.size() + step.receives.size();
      for (const PipelinePass& pass : step.sends) {
        EXPECT_TRUE(state.computed.contains(text(pass))) << "rank " << rank << " sends " << text(pass);
        post(sent_[{rank, pipeline_receiver(order_, rank, pass)}], {rank, 0, pass});
      }
      for (const PipelinePass& pass : step.receives)
        post(wanted_[{pipeline_sender(order_, rank, pass), rank}], {rank, 0, pass});
      match();
      return true;
    }
    if (state.open > 0) return false;
    if (step.pass) compute(rank, step);
    ++state.next, state.has_asked = false;
    return true;
  }

  void post(std::deque<Posted>& box, Posted message) {
    message.stage = message.pass.chunk * order_.ranks + message.rank;
    box.push_back(message);
  }

  void match() {
    for (auto& [pair, sent] : sent_) {
      std::deque<Posted>& wanted = wanted_[pair];
      while (!sent.empty() && !wanted.empty()) {
        const Posted from = sent.front(), to = wanted.front();
        sent.pop_front(), wanted.pop_front();
        EXPECT_EQ(from.pass.is_forward, to.pass.is_forward);
        EXPECT_EQ(from.pass.micro, to.pass.micro);
        EXPECT_EQ(from.stage + (from.pass.is_forward ? 1 : -1), to.stage);
        --ranks_[static_cast<size_t>(from.rank)].open;
        --ranks_[static_cast<size_t>(to.rank)].open;
        ranks_[static_cast<size_t>(to.rank)].arrived.insert(text(to.pass));
      }
    }
  }

  void compute(int rank, const PipelineStep& step) {
    State& state = ranks_[static_cast<size_t>(rank)];
    const PipelinePass& pass = *step.pass;
    if (pipeline_sender(order_, rank, pass) >= 0) {
      EXPECT_TRUE(state.arrived.contains(text(pass))) << "rank " << rank << " " << text(pass);
    }
    EXPECT_TRUE(state.computed.insert(text(pass)).second);
    if (step.with_backward) state.computed.insert(text({false, pass.chunk, pass.micro}));
    if (!pass.is_forward) {
      EXPECT_TRUE(state.computed.contains(text({true, pass.chunk, pass.micro})));
    }
  }

  const PipelineOrder order_;
  std::vector<State> ranks_;
  std::map<std::pair<int, int>, std::deque<Posted>> sent_, wanted_;
};

// When each pass would end if a forward pass took a second, a backward pass two, and messages nothing: the longest of
// the ranks.
double seconds_of(const PipelineOrder& order) {
  const auto count = static_cast<size_t>(order.ranks);
  std::vector<std::vector<PipelinePass>> passes;
  for (int rank = 0; rank < order.ranks; ++rank) passes.push_back(pipeline_passes(order, rank));
  std::map<std::array<int64_t, 3>, double> ends;  // by direction, stage and micro-batch
  std::vector<size_t> next(count);
  std::vector<double> free(count);
  for (bool any = true; any;) {
    any = false;
    for (size_t rank = 0; rank < count; ++rank)
      for (; next[rank] < passes[rank].size(); ++next[rank]) {
        const PipelinePass& pass = passes[rank][next[rank]];
        const int64_t stage = int64_t{pass.chunk} * order.ranks + static_cast<int64_t>(rank);
        double begin = free[rank];
        if (pipeline_sender(order, static_cast<int>(rank), pass) >= 0) {
          const auto needed = ends.find({pass.is_forward ? 1 : 0, stage + (pass.is_forward ? -1 : 1), pass.micro});
          if (needed == ends.end()) break;
          begin = std::max(begin, needed->second);
        }
        free[rank] = begin + (pass.is_forward ? 1.0 : 2.0) / order.chunks;
        ends[{pass.is_forward ? 1 : 0, stage, pass.micro}] = free[rank];
        any = true;
      }
  }
  for (size_t rank = 0; rank < count; ++rank) EXPECT_EQ(next[rank], passes[rank].size());
  return *std::ranges::max_element(free);
}

TEST(PipelineOrder, NoRankWaitsForOneThatWaitsForIt) {
  for (const int ranks : {2, 3, 4, 5})
    for (const int chunks : {1, 2, 3, 4})
      for (int64_t micros = 1; micros <= 4 * ranks; ++micros) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(chunks) + " chunks, " +
                     std::to_string(micros) + " micro-batches");
        EXPECT_TRUE(Rendezvous({ranks, chunks, micros}).run());
      }
}

TEST(PipelineOrder, InterleavingDividesTheBubbleByTheChunks) {
  for (const int ranks : {2, 4, 8})
    for (const int chunks : {1, 2, 4})
      for (const int64_t groups : {1, 2, 4}) {
        const int64_t micros = groups * ranks;
        const double work = 3.0 * static_cast<double>(micros);
        EXPECT_NEAR((seconds_of({ranks, chunks, micros}) - work) / work,
            (ranks - 1.0) / static_cast<double>(micros * chunks), 1e-9)
            << ranks << " ranks, " << chunks << " chunks, " << micros << " micro-batches";
      }
}

TEST(PipelineOrder, AStageKeepsAsManyMicroBatchesAsThereAreStagesBehindIt) {
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(pipeline_slots({4, 1, 8}, rank), (std::vector<int64_t>{4 - rank}));
  EXPECT_EQ(pipeline_slots({4, 1, 2}, 0), (std::vector<int64_t>{2}));
}

TEST(PipelineOrder, EveryPassIsComputedOnce) {
  for (const int64_t micros : {1, 4, 5, 6})
    for (int rank = 0; rank < 3; ++rank) {
      std::set<std::string> seen;
      for (const PipelinePass& pass : pipeline_passes({3, 2, micros}, rank))
        EXPECT_TRUE(seen.insert(text(pass)).second);
      EXPECT_EQ(seen.size(), 2U * 2 * static_cast<size_t>(micros));
    }
}

// A rank does not know that an epoch ends with fewer micro-batches before there are no more.
TEST(PipelineOrder, FewerMicroBatchesBeginAsMoreDo) {
  for (int ranks = 2; ranks <= 5; ++ranks)
    for (int chunks = 1; chunks <= 3; ++chunks)
      for (int rank = 0; rank < ranks; ++rank) {
        const int64_t most = 6 * (chunks == 1 ? 1 : ranks);
        const std::vector<PipelineStep> more = pipeline_steps({ranks, chunks, most}, rank);
        for (int64_t micro_batches = 1; micro_batches < most; ++micro_batches) {
          const std::vector<PipelineStep> fewer = pipeline_steps({ranks, chunks, micro_batches}, rank);
          const auto has_begun = [&](const PipelineStep& step) {
            const auto begun = [&](const PipelinePass& pass) { return pass.micro < micro_batches; };
            return std::ranges::all_of(step.receives, begun) && (!step.pass || begun(*step.pass));
          };
          for (size_t i = 0; i < more.size() && has_begun(more[i]); ++i) {
            ASSERT_LT(i, fewer.size());
            EXPECT_EQ(more[i].sends, fewer[i].sends);
            EXPECT_EQ(more[i].receives, fewer[i].receives);
            EXPECT_EQ(more[i].pass, fewer[i].pass);
          }
        }
      }
}
}  // namespace
}  // namespace linnet
