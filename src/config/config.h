// A training run's configuration as a plain struct, and as TOML. config_table.cpp has names, ranges, choices and
// documentation of all keys. A file may give keys flat or in sections ([model], [data], [train], ...). Each problem is
// a one-line user error with its location: config.toml:12: unknown key "learning_rat" (did you mean "learning_rate"?)
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "distributed/comm/pipeline_order.h"
#include "models/nn/weight_quantization.h"

namespace linnet {
struct ModelConfig {
  std::string architecture = "transformer";
  std::string from;
  int64_t d_model = 256, num_heads = 8;
  int64_t num_encoder_layers = 3;  // num_layers sets both
  int64_t num_decoder_layers = 3;
  int64_t d_ff = 1024;
  int64_t max_seq_len = 256;
  double dropout = 0.1;
  std::string norm = "post";
  bool final_norm = false;
  std::string activation = "relu";
  bool share_embeddings = false, tie_head = false;
  int64_t filters = 16, depth = 20, patch_size = 4;
  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  std::string task = "text";
  std::string data_dir;
  std::string train_source, train_target, valid_source, valid_target, test_source, test_target;
  std::string train_tsv, valid_tsv, test_tsv;
  std::string source_language, target_language;
  std::string text_column, pair_column, label_column;
  std::string text, valid_text, test_text;
  std::string tokenizer_dir;
  double valid_share = 0.1;
  int64_t token_bytes = 2;
  int64_t context = 0;
  int64_t held_out_pairs = 0, held_out_images = 0;
  double held_out = 0.1;
  int64_t image_size = 0;
  std::string image_fit = "crop", image_memory = "4GiB";
  int64_t image_threads = 0;
  int64_t augment_shift = 0, augment_cutout = 0, augment_random = 0, augment_strength = 9;
  bool augment_mirror = false;
  double augment_rotate = 0, augment_mixup = 0, augment_cutmix = 0, augment_crop = 0;
  int64_t train_samples = 100'000, valid_samples = 1000, test_samples = 1000;
  std::string tokenizer = "sentencepiece", tokenizer_model = "bpe";
  double character_coverage = 1.0;
  int64_t vocab_size = 8000;
  bool joint_vocab = true;
  int64_t batch_size = 0, batch_tokens = 4096, num_buckets = 8;
  bool operator==(const DataConfig&) const = default;
};

// One [[train.groups]]: parameters that are frozen or have their own settings. The first group with a match wins.
struct GroupConfig {
  std::vector<std::string> parameters;  // patterns of names; '*' matches any characters
  bool frozen = false;
  std::string storage = "fp32";  // of matrices; or "bf16", for frozen ones also "int8"
  double learning_rate_factor = 1;
  std::optional<double> weight_decay = {};    // empty: as in [train]
  std::optional<std::string> optimizer = {};  // empty: as in [train]
  bool operator==(const GroupConfig&) const = default;
};

// Low-rank adapters (Hu et al. 2022) for the weights of model.from, which are frozen.
struct LoraConfig {
  int64_t rank = 0;
  double alpha = 16;
  std::string targets;
  std::string base_storage = "fp32";  // of the adapted weights; see GroupConfig::storage
  bool operator==(const LoraConfig&) const = default;
};

// For task = "embeddings".
struct EmbeddingsConfig {
  std::string loss = "auto";
  double scale = 20, margin = 5;
  std::string dimensions;
  bool operator==(const EmbeddingsConfig&) const = default;
};

// For task = "answers".
struct AnswersConfig {
  int64_t stride = 128, longest = 30, candidates = 20;
  double threshold = 0;
  bool may_lack = false;  // whether a question may have no answer; set by the model, no key
  bool operator==(const AnswersConfig&) const = default;
};

// How task = "preferences" learns which of two answers is better.
struct PreferenceConfig {
  std::string method = "dpo";
  double beta = 0.1;
  bool operator==(const PreferenceConfig&) const = default;
};

// Distillation (Hinton et al. 2015): a model learns a larger one's answers.
struct DistillationConfig {
  std::string teacher;
  double temperature = 2, teacher_alpha = 0.5;
  bool operator==(const DistillationConfig&) const = default;
};

struct TrainConfig {
  std::string optimizer = "adam";
  double learning_rate = 1e-3;
  std::string schedule = "constant";
  int64_t warmup_steps = 0;
  double final_learning_rate = 0.0;
  int64_t max_steps = 10'000, max_epochs = 0;
  double max_minutes = 0.0;
  double beta1 = 0.9, beta2 = 0.98, epsilon = 1e-9;
  double momentum = 0.9, weight_decay = 0.0;
  double clip_norm = 1.0, label_smoothing = 0.0;
  std::string class_weights;
  double ema_decay = 0.0;
  int64_t accumulate_steps = 1, micro_batches = 0;
  int64_t data_shards = 0, zero = 1;
  std::string parallel;
  int64_t seed = 1;
  int64_t eval_every = 500, eval_pairs = 0, eval_beam = 1;
  int64_t sample_length = 0;
  int64_t patience = 0;
  std::string metric = "bleu";
  int64_t beam = 4;
  double length_penalty = 1.0;
  int64_t save_every = 500, keep_checkpoints = 0, keep_every = 0, log_every = 1;
  bool tensorboard = false;
  int64_t threads = 0;
  std::string device = "cpu";
  std::string precision = "fp32", attention_precision = "same";
  std::string quantize = "none";
  double loss_scale = 65536.0;
  int64_t loss_scale_steps = 2000;
  std::string storage = "auto", recompute = "auto";
  std::string memory;
  std::string isa = "auto";
  std::string freeze;               // comma-separated patterns of names: a frozen group before all others
  std::vector<GroupConfig> groups;  // [[train.groups]]
  bool operator==(const TrainConfig&) const = default;
};

struct ProcessRank {
  int rank = 0, ranks = 1;
  bool operator==(const ProcessRank&) const = default;
};

struct Config {
  ModelConfig model;
  DataConfig data;
  LoraConfig lora;
  EmbeddingsConfig embeddings;
  AnswersConfig answers;
  PreferenceConfig preferences;
  DistillationConfig distillation;
  TrainConfig train;
  WeightQuantization quantization = {};  // set by the command line, for inference: no key
  ProcessRank process = {};              // set by the launching program: no key
  std::vector<std::string> chosen = {};  // keys that set_value() has set: no key
  bool operator==(const Config&) const = default;
};

// Loads a preset or a TOML file; missing keys have their defaults. Checks each value's own range; validate() checks
// rules between keys, which set_value() may still change.
Config load_config(const std::string& path_or_preset);
// The same from TOML text; `name` stands for the path in messages.
Config parse_config(std::string_view toml, const std::string& name);

// Sets one "key=value", with or without section, as --set does: "model.d_model=64". `shown`: what the user wrote, for
// messages; empty: key_and_value.
void set_value(Config& config, const std::string& key_and_value, const std::string& shown = "");

// Checks all ranges again, and the rules between keys. Call it before anything is built.
void validate(const Config& config);

// User error for a key that the task and its architecture do not have, unless at its default.
void check_keys_belong(const Config& config);
// The same for one --set, whatever its value; also for a key that model.from decides.
void check_setting_belongs(const Config& config, const std::string& key_and_value);

double peak_learning_rate(const Config& config);  // learning_rate, or what its 0 stands for

// The configuration of one data shard: a step's batch is cut into train.data_shards parts (0: one for each rank with
// other data), each into train.micro_batches (0: one) with accumulated gradients. Its batch_size, batch_tokens and
// accumulate_steps are those of one part.
Config of_one_shard(Config config);
// Doubles micro-batches and halves their size. False, without a change, if a batch cannot be cut further.
bool double_micro_batches(Config& config);

// All keys by section; parse_config() gives back an equal Config. `comments`: with meaning and choices above each key,
// without keys at their default that the task or architecture does not have.
std::string to_toml(const Config& config, bool comments);

// A configuration that comes with the program.
struct Preset {
  const char *name, *description, *toml;  // a one-line description
};
std::span<const Preset> presets();
const Preset* find_preset(std::string_view name);  // null if there is none
inline bool is_preset(std::string_view name) { return find_preset(name) != nullptr; }

// The keys in which two configurations differ, in table order.
std::vector<std::string> changed_keys(const Config& a, const Config& b);
// Sets keys that `wanted` leaves at their default, unless chosen, to saved values: versions differ in defaults. Returns
// these keys.
std::vector<std::string> keep_saved_values(const Config& saved, Config& wanted);
// Whether --resume may change the key: it decides how long, where and how loudly to train, not what is learned.
bool may_change_on_resume(const std::string& key);

// Makes paths of data and models absolute, so that a run folder can be used from anywhere.
Config with_absolute_paths(Config config);
// Keys that name data files; each may be empty. See data_path().
std::vector<std::string*> data_files(Config& config);
std::vector<std::string> data_file_keys();  // in the same order
// `path` below data_dir, unless it is absolute or either is empty. Relative paths start at the current directory.
std::string data_path(const DataConfig& data, const std::string& path);

// What configurations know of values of data.task. The program's actions are in tasks/task_table.h.

enum class TaskKind { kTranslation, kLanguage, kMaskedLanguage, kTexts, kImages };

// The source of examples: the user's files, or generated by the program.
enum class ExampleOrigin { kFiles, kDates, kRandom };

struct TaskRow {
  std::string_view name;  // the value of data.task
  TaskKind kind;
  ExampleOrigin origin;
  std::string DataConfig::*data;                    // the file or folder that --data names
  std::string_view data_task;                       // the task for the user's own data: this one, or "text"
  std::string_view owner;                           // owner of its keys (config_table.cpp): itself, or "texts"
  const char* description;                          // for people: "translation"
  const char* items;                                // counted by speed: "tokens"
  std::span<const std::string_view> architectures;  // supported ones; messages suggest the first
  std::span<const std::string_view> metrics;        // besides "loss", which every task has
  std::span<const std::string_view> heads = {};     // parameters trained beside adapters
};

std::span<const TaskRow> task_rows();
// The configuration's row; validate() or the parser checked that it exists.
const TaskRow& task_row(const Config& config);
inline TaskKind task_kind(const Config& config) { return task_row(config).kind; }

// The rank layout of train.parallel. User error if it does not fit the number of ranks.
RankLayout parallel_layout(const std::string& parallel, int ranks);
}  // namespace linnet
