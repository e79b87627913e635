// For tests of the engine with models of either kind: what requests give, alone and beside others.
#pragma once
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>
#include "generation/engine.h"

namespace linnet {
// What a request gives: the bits of all logits that its tokens were picked from, and its result.
struct Written {
  std::vector<float> logits;
  FinishedRequest finished;
};

inline void expect_same(const Written& got, const Written& want, size_t request, const std::string& where) {
  const FinishedRequest &a = got.finished, &b = want.finished;
  const std::string text = where + ", request " + std::to_string(request);
  EXPECT_EQ(a.result.tokens, b.result.tokens) << text;
  EXPECT_EQ(got.logits, want.logits) << text;
  EXPECT_EQ(a.result.log_probabilities, b.result.log_probabilities) << text;
  EXPECT_EQ(a.result.log_probability, b.result.log_probability) << text;
  EXPECT_EQ(a.reason, b.reason) << text;
  ASSERT_EQ(a.hypotheses.size(), b.hypotheses.size()) << text;
  for (size_t i = 0; i < b.hypotheses.size(); ++i) {
    EXPECT_EQ(a.hypotheses[i].ids, b.hypotheses[i].ids) << text;
    EXPECT_EQ(a.hypotheses[i].score, b.hypotheses[i].score) << text;
    EXPECT_EQ(a.hypotheses[i].finished, b.hypotheses[i].finished) << text;
  }
}

// Submits the requests of `order`, up to `most_arrivals` of them between any two steps, and runs them all.
// `most_arrivals` 0: each when the one before has finished.
inline std::map<size_t, Written> write_all(Engine& engine, ThreadPool& pool,
    const std::vector<GenerateRequest>& requests, const std::vector<size_t>& order, size_t most_arrivals,
    std::mt19937& random) {
  std::map<size_t, Written> written;
  std::map<RequestId, size_t> index;
  for (size_t next = 0; next < order.size() || engine.busy();) {
    const size_t arrivals = most_arrivals == 0 ? !engine.busy() : random() % (most_arrivals + 1);
    for (size_t i = 0; i < arrivals && next < order.size(); ++i, ++next) {
      GenerateRequest request = requests[order[next]];
      request.listener = [&logits = written[order[next]].logits](const GeneratedToken& heard) {
        logits.insert(logits.end(), heard.logits.begin(), heard.logits.end());
        return true;
      };
      index[engine.submit(std::move(request))] = order[next];
    }
    engine.step(pool);
    for (FinishedRequest& finished : engine.take_finished())
      written[index.at(finished.id)].finished = std::move(finished);
  }
  return written;
}
}  // namespace linnet
