// Everything a training run depends on, as one plain struct, and its form as TOML.
//
// config_table.cpp holds the one table of all keys: names, ranges, choices and documentation come from there. A file
// may give keys flat or inside [model], [data], [train] and so on. Every problem is a user error of one line, with the
// file and line where there is one:
//   config.toml:12: unknown key "learning_rat" (did you mean "learning_rate"?)
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
  int64_t d_model = 256;
  int64_t num_heads = 8;
  int64_t num_encoder_layers = 3;  // the key num_layers sets both
  int64_t num_decoder_layers = 3;
  int64_t d_ff = 1024;
  int64_t max_seq_len = 256;
  double dropout = 0.1;
  std::string norm = "post";
  bool final_norm = false;
  std::string activation = "relu";
  bool share_embeddings = false;
  bool tie_head = false;
  int64_t filters = 16;
  int64_t depth = 20;
  int64_t patch_size = 4;
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
  std::string image_fit = "crop";
  std::string image_memory = "4GiB";
  int64_t image_threads = 0;
  int64_t augment_shift = 0, augment_cutout = 0, augment_random = 0, augment_strength = 9;
  bool augment_mirror = false;
  double augment_rotate = 0, augment_mixup = 0, augment_cutmix = 0, augment_crop = 0;
  int64_t train_samples = 100'000, valid_samples = 1000, test_samples = 1000;
  std::string tokenizer = "sentencepiece";
  std::string tokenizer_model = "bpe";
  double character_coverage = 1.0;
  int64_t vocab_size = 8000;
  bool joint_vocab = true;
  int64_t batch_size = 0;
  int64_t batch_tokens = 4096;
  int64_t num_buckets = 8;
  bool operator==(const DataConfig&) const = default;
};

// One [[train.groups]]: parameters that are frozen or trained otherwise than [train] says. A parameter belongs to the
// first group that has a pattern for its name.
struct GroupConfig {
  std::vector<std::string> parameters;  // patterns of names; '*' stands for any characters
  bool frozen = false;
  std::string storage = "fp32";  // of matrices; or "bf16", and of frozen ones "int8"
  double learning_rate_factor = 1;
  std::optional<double> weight_decay = {};    // empty: as [train] says
  std::optional<std::string> optimizer = {};  // the same
  bool operator==(const GroupConfig&) const = default;
};

// Low-rank adapters (Hu et al. 2022) beside the weights of model.from, which then stay as they are.
struct LoraConfig {
  int64_t rank = 0;
  double alpha = 16;
  std::string targets;
  std::string base_storage = "fp32";  // of the weights beside which adapters are trained; see GroupConfig::storage
  bool operator==(const LoraConfig&) const = default;
};

// Of task = "embeddings".
struct EmbeddingsConfig {
  std::string loss = "auto";
  double scale = 20;
  double margin = 5;
  std::string dimensions;
  bool operator==(const EmbeddingsConfig&) const = default;
};

// Of task = "answers".
struct AnswersConfig {
  int64_t stride = 128;
  int64_t longest = 30;
  int64_t candidates = 20;
  double threshold = 0;
  bool may_lack = false;  // whether a question may have no answer; of the model: there is no key
  bool operator==(const AnswersConfig&) const = default;
};

// How task = "preferences" learns which of two answers is better.
struct PreferenceConfig {
  std::string method = "dpo";
  double beta = 0.1;
  bool operator==(const PreferenceConfig&) const = default;
};

// Distillation (Hinton et al. 2015): a model learns from what a larger one answers.
struct DistillationConfig {
  std::string teacher;
  double temperature = 2;
  double teacher_alpha = 0.5;
  bool operator==(const DistillationConfig&) const = default;
};

struct TrainConfig {
  std::string optimizer = "adam";
  double learning_rate = 1e-3;
  std::string schedule = "constant";
  int64_t warmup_steps = 0;
  double final_learning_rate = 0.0;
  int64_t max_steps = 10'000;
  int64_t max_epochs = 0;
  double max_minutes = 0.0;
  double beta1 = 0.9, beta2 = 0.98, epsilon = 1e-9;
  double momentum = 0.9;
  double weight_decay = 0.0;
  double clip_norm = 1.0;
  double label_smoothing = 0.0;
  std::string class_weights;
  double ema_decay = 0.0;
  int64_t accumulate_steps = 1;
  int64_t micro_batches = 0;
  int64_t data_shards = 0;
  int64_t zero = 1;
  std::string parallel;
  int64_t seed = 1;
  int64_t eval_every = 500;
  int64_t eval_pairs = 0;
  int64_t eval_beam = 1;
  int64_t sample_length = 0;
  int64_t patience = 0;
  std::string metric = "bleu";
  int64_t beam = 4;
  double length_penalty = 1.0;
  int64_t save_every = 500;
  int64_t keep_checkpoints = 0;
  int64_t keep_every = 0;
  int64_t log_every = 1;
  bool tensorboard = false;
  int64_t threads = 0;
  std::string device = "cpu";
  std::string precision = "fp32";
  std::string attention_precision = "same";
  std::string quantize = "none";
  double loss_scale = 65536.0;
  int64_t loss_scale_steps = 2000;
  std::string storage = "auto";
  std::string recompute = "auto";
  std::string memory;
  std::string isa = "auto";
  std::string freeze;               // patterns of names, separated by commas: a frozen group before all others
  std::vector<GroupConfig> groups;  // [[train.groups]]
  bool operator==(const TrainConfig&) const = default;
};

// Which of several processes that train together this one is.
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
  // Of the command line, for inference: there is no key.
  WeightQuantization quantization = {};
  // Of the program that started this process: there is no key.
  ProcessRank process = {};
  bool operator==(const Config&) const = default;
};

// A preset's name, or the path of a TOML file; keys that it leaves out have their defaults. Each value is checked
// against its own range; what must hold between keys is left to validate(), because set_value() may still change one.
Config load_config(const std::string& path_or_preset);
// The same from TOML text; `name` stands for the path in messages.
Config parse_config(std::string_view toml, const std::string& name);

// One "key=value" as after --set. The key may have its section in front: "model.d_model=64". `shown`: what the user
// wrote, for messages; empty: --set and key_and_value.
void set_value(Config& config, const std::string& key_and_value, const std::string& shown = "");

// What must hold before anything is built: every range once more, and the rules between keys.
void validate(const Config& config);

// User error for a key that means nothing to the task and its architecture and has another value than its default.
void check_keys_belong(const Config& config);
// The same for one --set, whatever its value.
void check_setting_belongs(const Config& config, const std::string& key_and_value);

// learning_rate, or what its 0 stands for.
double peak_learning_rate(const Config& config);

// The configuration of one data shard: a step's batch is cut into train.data_shards parts (0: one for each rank that
// trains on other data), and each of them into train.micro_batches (0: one), whose gradients are accumulated.
// batch_size and batch_tokens are those of one part, and accumulate_steps counts them.
Config of_one_shard(Config config);
// Twice as many micro-batches, each half as large. False, and nothing changes, where a batch cannot be cut further.
bool double_micro_batches(Config& config);

// Every key, by section, so that parse_config() gives back an equal Config. With comments: each key's meaning and
// choices above it; keys at their default that the task or architecture does not have are left out.
std::string to_toml(const Config& config, bool comments);

// The configurations that come with the program.
struct Preset {
  const char *name, *description, *toml;  // the description is one line
};
std::span<const Preset> presets();
const Preset* find_preset(std::string_view name);  // null when there is none
inline bool is_preset(std::string_view name) { return find_preset(name) != nullptr; }

// The keys in which two configurations differ, in the order of the table.
std::vector<std::string> changed_keys(const Config& a, const Config& b);
// Gives each key that `wanted` leaves at its default the value that a run was made with; a default may be another in a
// later version. Returns the keys it changed.
std::vector<std::string> keep_saved_values(const Config& saved, Config& wanted);
// Whether --resume may change this key: it decides how long, where and how loudly to train, not what is learned.
bool may_change_on_resume(const std::string& key);

// Paths of data and models are made absolute, as a run folder has them, so that it can be used from anywhere.
Config with_absolute_paths(Config config);
// The keys that name a file of data; each may be empty. See data_path().
std::vector<std::string*> data_files(Config& config);
std::vector<std::string> data_file_keys();  // their names, in the same order
// `path` below data_dir, unless it is absolute or either is empty. Relative paths start at the current directory.
std::string data_path(const DataConfig& data, const std::string& path);

// What the configuration knows of the values of data.task. What the program does with them is tasks/task_table.h.

enum class TaskKind { kTranslation, kLanguage, kMaskedLanguage, kTexts, kImages };

// Where the examples come from: files that the user names, or the program itself.
enum class ExampleOrigin { kFiles, kDates, kRandom };

struct TaskRow {
  std::string_view name;  // the value of data.task
  TaskKind kind;
  ExampleOrigin origin;
  std::string DataConfig::*data;                    // the one file or folder that --data names
  std::string_view data_task;                       // the task with data of the user's: this one, or "text"
  std::string_view owner;                           // whose keys it has (config_table.cpp): itself, or "texts"
  const char* description;                          // for people: "translation"
  const char* items;                                // what a speed counts: "tokens"
  std::span<const std::string_view> architectures;  // that go with it; the first is what a message suggests
  std::span<const std::string_view> metrics;        // beside "loss", which every task has
  std::span<const std::string_view> heads = {};     // parameters that are trained beside adapters
};

std::span<const TaskRow> task_rows();
// The row of the configuration's task, which validate() or the parser found to exist.
const TaskRow& task_row(const Config& config);
inline TaskKind task_kind(const Config& config) { return task_row(config).kind; }

// How train.parallel arranges ranks. User error where it does not fit their number.
RankLayout parallel_layout(const std::string& parallel, int ranks);
// User error where it is not understood, for whatever number of ranks.
void check_parallel(const std::string& parallel);

}  // namespace linnet
