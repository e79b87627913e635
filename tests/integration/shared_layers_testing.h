// Runs in which several ranks share the layers of one model: what their tests share.
#pragma once
#include <algorithm>
#include <cmath>
#include "integration/ranks_testing.h"

namespace linnet::testing {
// Sentences of few words, which a tokenizer makes a small vocabulary of.
inline std::string words_in_order() {
  const char* words[] = {"tensor", "ranks", "divide", "one", "model", "and", "train", "it", "together", "as"};
  std::string text;
  uint32_t random = 1;
  for (int i = 0; i < 4000; ++i) {
    random = random * 1664525 + 1013904223;
    text += words[(random >> 28) % 10];
    text += i % 11 == 10 ? ".\n" : " ";
  }
  return text;
}

class SharedLayers : public Ranks {
 protected:
  void SetUp() override {
    Ranks::SetUp();
    text_ = folder_.write("text.txt", words_in_order());
  }

  // A decoder of GPT's kind with dropout everywhere.
  Arguments gpt(const std::string& run, const Arguments& more = {}) const {
    Arguments arguments{"train", "text", "--data", text_, "--run", folder_ / run};
    add_settings(arguments,
        {"architecture=gpt", "d_model=32", "num_heads=4", "num_layers=2", "d_ff=64", "max_seq_len=32", "context=24",
            "vocab_size=300", "batch_size=4", "batch_tokens=0", "dropout=0.1", "max_steps=20", "eval_every=10",
            "save_every=10", "schedule=constant", "warmup_steps=0", "sample_length=0", "precision=fp32", "threads=1"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  static void expect_trained(const Outcome& outcome) { ASSERT_EQ(outcome.exit_code, 0) << outcome.error; }

  void expect_close_losses(const std::string& a, const std::string& b, size_t steps = 20) {
    const auto of_a = of_split(read_metrics(folder_ / a), "train"), of_b = of_split(read_metrics(folder_ / b), "train");
    ASSERT_EQ(of_a.size(), steps);
    ASSERT_EQ(of_b.size(), steps);
    for (size_t i = 0; i < steps; ++i) {
      const double loss = std::stod(of_b[i].loss), norm = std::stod(of_b[i].grad_norm);
      EXPECT_NEAR(std::stod(of_a[i].loss), loss, 1e-5 * loss) << "step " << i + 1;
      EXPECT_NEAR(std::stod(of_a[i].grad_norm), norm, 2e-3 * norm) << "step " << i + 1;
    }
  }

  std::string text_;
};
}  // namespace linnet::testing
