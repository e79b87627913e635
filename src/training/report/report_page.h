// Self-contained HTML pages about runs and inspections: no network, no other files.
#pragma once
#include "training/trainer/trainer.h"

namespace linnet {
// What a run folder holds. Everything but the name may be empty.
struct ReportRun {
  std::string name;
  std::vector<std::pair<std::string, std::string>> config;  // "train.seed" and its value as TOML
  std::string metrics;                                      // lines of metrics.jsonl
  std::string samples;                                      // lines of samples.jsonl
  std::string classes;  // JSON: of the best evaluation (data/metrics/class_report.h)
  std::string memory;   // JSON: picture, items, parameters
  std::string profile;  // JSON: summary_json() (engine/profile/profile.h)
  std::string system;   // JSON: an object of texts
};

struct ReportTitle {
  std::string title, subtitle;
  std::string command;  // that made the page: "report"
};

// Below 2 MB: thins curves and, if that is not enough, drops later runs' memory and profiles. Skips damaged input.
std::string report_page(const ReportTitle& title, std::span<const ReportRun> runs);

// Offsets and lifetimes of all tensors in the plan with the largest arena (evaluation if there is no training):
// {"name", "arena_bytes", "nodes": [[op, phase, module, source]...], "live": [bytes...], "tenants": [[type, offset,
// bytes, first node, last node]...]}
std::string memory_picture(const Trainer& trainer, RegionId arena);

// What `linnet inspect` found about one text: attention weights, and which tokens its answers came from.
struct InspectedSequence {
  std::string name;                 // "text", "source", "target"
  std::vector<std::string> tokens;  // for display
};

struct InspectedAttention {
  std::string module;    // "layers.0.self_attn"
  size_t queries, keys;  // indices of the sequences
  size_t heads;
  std::vector<float> weights;  // [heads, queries, keys], rows that sum to 1
};

struct InspectedAnswer {
  std::string text;                                       // a class or a token
  std::vector<std::pair<std::string, double>> likeliest;  // answers with their probabilities, best first
  double log_probability = 0;                             // natural
  double baseline = 0;                                    // with every token's embedding set to the table's mean
  std::vector<std::vector<double>> shares;                // [sequences][tokens]: add up to the difference of the two
};

struct Inspection {
  std::string model;  // its folder
  std::string kind;   // "language model"
  std::vector<InspectedSequence> sequences;
  std::vector<InspectedAttention> attention;
  std::vector<InspectedAnswer> answers;
};

std::string inspection_json(const Inspection& inspection);
// Attention weights are rounded to multiples of 1 / 65535.
std::string inspection_page(const Inspection& inspection);
}  // namespace linnet
