// Sanity checks of a model before a long training run, with its loss, initial weights and one batch.
#pragma once
#include "training/trainer/trainer.h"

namespace linnet {
enum class Verdict { kPass, kFail, kSkipped };
template <> inline constexpr std::array kEnumNames<Verdict>{"pass", "fail", "skip"};

struct CheckLine {
  std::string name;  // "causality"
  Verdict verdict;
  std::string figure;  // for example "loss 9.32, ln(6000 classes) = 8.70"; of a skipped check the reason
};

// Token arrays of a batch, i32 [rows, length].
struct CheckSequence {
  std::string tokens;
  std::string lengths;  // i32 [rows]: tokens beyond it are padding; empty: rows are full
  std::string targets;  // [rows, length]: target t is predicted from tokens up to t; empty: not a language model
};

// Arrays of one batch by graph input; the first axis is the rows.
using CheckBatch = std::map<std::string, std::vector<std::byte>>;

struct CheckSubject {
  Trainer& trainer;  // without dropout, label smoothing or moving average; steps have one micro-batch
  CheckBatch batch;
  int shape = 0;
  std::function<void()> reset;  // restores the initial weights
  double learning_rate = 1e-3;
  bool is_fresh = true;  // the weights are random, not read from a folder
  std::vector<CheckSequence> sequences = {};
  std::vector<std::string> labels = {};  // i32 arrays whose negative values are ignored
  bool rows_are_apart = true;            // each row has its own loss
  bool labels_are_positions = false;     // of tokens in their rows
  std::string flat_positions = {};       // i32 indices in [rows * length] (masked tokens)
  // The mean loss of the same batch and weights with products in bf16; empty without bf16 instructions.
  std::function<double()> bf16_loss = {};
  std::function<void()> before_step = [] {};  // before each step and evaluation; what it throws ends the checks
  uint64_t planned_bytes = 0;                 // planned memory of the process; 0: not known
};

// Runs all checks; `on_line` is called after each.
std::vector<CheckLine> run_checks(CheckSubject& subject, const std::function<void(const CheckLine&)>& on_line = {});

// Shared by the files of this folder.
struct Finding {
  Verdict verdict;
  std::string figure;
};
Finding verdict(bool passes, std::string figure);
Finding skipped(std::string why);

const Graph& evaluation_graph(const CheckSubject& subject);
void load(const CheckSubject& subject, const CheckBatch& batch);
// Restores the initial weights, resets the optimizer and loads the subject's batch.
void restart(CheckSubject& subject);
double difference(double a, double b);  // |a - b| relative to the larger

Finding check_gradient_norms(CheckSubject& subject);
Finding check_finite_differences(CheckSubject& subject);
Finding check_attention(CheckSubject& subject);
Finding check_dead_units(CheckSubject& subject);
}  // namespace linnet
