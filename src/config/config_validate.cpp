// Rules between keys. Messages name the keys and their values.
#include <algorithm>
#include <cmath>
#include "base/fail.h"
#include "base/functions.h"
#include "base/numbers.h"
#include "base/text.h"
#include "config/config.h"
#include "config/config_keys.h"
#include "config/hints.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
// Numbers in the text; 0 for omitted ones.
RankLayout parse(const std::string& text) {
  RankLayout layout{.data = 0, .tensor = 0, .pipeline = 0, .interleave = 0};
  const auto fail = [&] {
    fail_user("parallel = \"", text, "\" is not understood; write for example pipeline=2 or data=2,tensor=2");
  };
  for (const std::string_view part : split(text, ',')) {
    if (part.empty()) continue;
    const size_t equals = std::min(part.find('='), part.size() - 1);
    const std::string_view name = part.substr(0, equals), value = part.substr(equals + 1);
    int* number = name == "data"         ? &layout.data
                  : name == "tensor"     ? &layout.tensor
                  : name == "pipeline"   ? &layout.pipeline
                  : name == "interleave" ? &layout.interleave
                                         : nullptr;
    if (!number || *number != 0) fail();
    const bool splits_encoder = number == &layout.pipeline && value == "encoder-decoder";
    layout.splits_encoder |= splits_encoder;
    *number = splits_encoder ? 2 : parse_number<int>(value).value_or(0);
    if (*number < 1 || *number > 1 << 15) fail();
  }
  if (layout.interleave > 1 && layout.pipeline < 2)
    fail_user("parallel = \"", text, "\": interleave is of a pipeline: write for example pipeline=2,interleave=2");
  if (layout.interleave > 1 && layout.splits_encoder)
    fail_user("parallel = \"", text, "\": encoder and decoder are two stages, which interleave does not divide");
  return layout;
}

void require(bool holds, const std::string& problem) {
  if (!holds) fail_user("config: ", problem);
}

std::string named(const char* name, int64_t value) { return std::string(name) + " = " + std::to_string(value); }

// config.toml is UTF-8: a run with a path in another encoding could never be opened again.
void check_text(const ConfigKey& key, const FieldValue& value) {
  const std::string* text = std::get_if<std::string>(&value);
  const size_t bad = text ? invalid_utf8_at(*text) : std::string::npos;
  require(bad == std::string::npos,
      std::string(key.name) + ": byte " + std::to_string(bad + 1) + " of " + value_text(value) +
          " is not valid UTF-8, as config.toml must be; give the file or folder another name");
}

// In doubles, to find sizes whose products overflow integers.
double parameter_count(const Config& config) {
  const ModelConfig& model = config.model;
  const double d = static_cast<double>(model.d_model), ff = static_cast<double>(model.d_ff);
  const double vocab = static_cast<double>(config.data.vocab_size);
  const double attention = 4 * d * d, feed_forward = 2 * d * ff;
  const double tables = 1 + (model.share_embeddings ? 0 : 1) + (model.tie_head ? 0 : 1);
  return static_cast<double>(model.num_encoder_layers) * (attention + feed_forward) +
         static_cast<double>(model.num_decoder_layers) * (2 * attention + feed_forward) + tables * vocab * d;
}

// Elements of a batch's largest tensor: tokens x the widest row.
double batch_elements(const Config& config) {
  const ModelConfig& model = config.model;
  const DataConfig& data = config.data;
  const double length = static_cast<double>(model.max_seq_len);
  double tokens = data.batch_size > 0 ? static_cast<double>(data.batch_size) * length : INFINITY;
  if (data.batch_tokens > 0) tokens = std::fmin(tokens, static_cast<double>(data.batch_tokens));
  return std::fmax(tokens, length) * static_cast<double>(std::max({data.vocab_size, model.d_ff, 3 * model.d_model}));
}

void check_size(const char* what, double elements) {
  const double bytes = 4 * elements;  // float
  if (bytes < 0x1p62) return;
  fail_user("config: ", what, " would take ", printed("%.2e", bytes), " bytes, beyond any memory");
}

void check_device(const TrainConfig& train) {
  const bool cuda = train.device == "cuda" || train.device.starts_with("cuda:");
  require(cuda || train.device == "cpu", "device = \"" + train.device + "\"; there are cpu, cuda and cuda:N");
  require(!cuda || (train.precision != "fp16" && train.precision != "int8"),
      "precision = \"" + train.precision + "\" is the CPU's; a GPU has \"bf16\"");
  require(cuda || train.precision != "tf32", "precision = \"tf32\" is a GPU's: it needs device = \"cuda\"");
}

// For models of the configuration's sizes.
void check_layers(const ModelConfig& model) {
  require(model.d_model % model.num_heads == 0,
      named("d_model", model.d_model) + " is not divisible by " + named("num_heads", model.num_heads));
  require(model.architecture == "bert" || (model.num_encoder_layers > 0 && model.num_decoder_layers > 0),
      "num_layers = 0 leaves the embeddings alone, of which a \"bert\" alone learns; it is \"" + model.architecture +
          "\"");
}

void check_model(const Config& config) {
  const ModelConfig& model = config.model;
  require(
      model.architecture != "t5" || config.data.joint_vocab, "a t5 has one vocabulary: it needs joint_vocab = true");
  if (!model.from.empty()) return;
  check_layers(model);
  require(model.d_model % 2 == 0,
      named("d_model", model.d_model) + " is odd, but positions take pairs of a sine and a cosine");
  require(model.architecture != "marian" || (model.norm == "post" && !model.final_norm && model.tie_head),
      "a marian has norm = \"post\", final_norm = false and tie_head = true");
  require(model.architecture != "marian" || model.share_embeddings || !config.data.joint_vocab,
      "a marian with joint_vocab needs share_embeddings = true");
  require(!model.share_embeddings || config.data.joint_vocab, "share_embeddings needs joint_vocab = true");
}

void check_lora(const Config& config) {
  const LoraConfig& lora = config.lora;
  require(lora.rank == 0 || !config.model.from.empty(),
      named("lora.rank", lora.rank) + " trains adapters beside the weights of a model folder: it needs model.from");
  for (const ConfigKey& key : config_keys())
    if (key.section == std::string_view("lora"))
      require(lora.rank > 0 || field_value(key, config) == field_value(key, Config{}),
          std::string("lora.") + key.name + " = " + value_text(field_value(key, config)) + " needs lora.rank");
  require(lora.alpha > 0, "lora.alpha = 0 multiplies what the adapters compute by 0: nothing would be trained");
}

void check_files(const char* split, const std::string& source, const std::string& target, const std::string& tsv) {
  const std::string name = split;
  require(source.empty() == target.empty(), source.empty() ? name + "_target is given without " + name + "_source"
                                                           : name + "_source is given without " + name + "_target");
  require(tsv.empty() || source.empty(), name + "_tsv and " + name + "_source are both given");
}

void check_data(const Config& config) {
  const DataConfig& data = config.data;
  if (task_row(config).origin == ExampleOrigin::kFiles) {
    check_files("train", data.train_source, data.train_target, data.train_tsv);
    check_files("valid", data.valid_source, data.valid_target, data.valid_tsv);
    check_files("test", data.test_source, data.test_target, data.test_tsv);
  } else {
    require(data.train_source.empty() && data.train_tsv.empty(),
        "task = \"" + data.task + "\" makes its own data, but a training file is given");
  }
  require(data.batch_size > 0 || data.batch_tokens > 0, "batch_size and batch_tokens are both 0");
  require(data.batch_tokens == 0 || data.batch_tokens >= config.model.max_seq_len,
      named("batch_tokens", data.batch_tokens) + " does not hold one sentence of " +
          named("max_seq_len", config.model.max_seq_len));
}

// Settings of other tasks would be ignored, and are more likely mistakes.
void check_task(const Config& config) {
  const TaskRow& task = task_row(config);
  const std::string &architecture = config.model.architecture, &metric = config.train.metric;
  if (!contains(task.architectures, architecture))
    fail_user("config: architecture = \"", architecture, "\" does not go with task = \"", config.data.task, "\"; \"",
        task.architectures.front(), "\" does");
  require(metric == "loss" || contains(task.metrics, metric),
      "task = \"" + config.data.task + "\" has no metric \"" + metric + "\"; it has loss" +
          joined(task.metrics, "", [](std::string_view name) { return ", " + std::string(name); }));
}

// A teacher is a second model, which ranks cannot divide and nothing else trains with.
void check_teacher(const Config& config) {
  if (config.distillation.teacher.empty()) return;
  const std::string& task = config.data.task;
  require(task == "language" || task == "chat" || task == "classification",
      "task = \"" + task + "\" learns from no teacher; \"language\", \"chat\" and \"classification\" do");
  const RankLayout division = parse(config.train.parallel);  // for any number of ranks
  require(division.tensor <= 1 && division.pipeline <= 1,
      "a teacher goes with data parallel alone: leave tensor and pipeline out of parallel");
}

// The configuration of model.from replaces the model's keys.
void check_context(const Config& config) {
  if (!config.model.from.empty()) return;
  require(config.data.context <= config.model.max_seq_len,
      named("context", config.data.context) + " is above " + named("max_seq_len", config.model.max_seq_len));
  check_layers(config.model);
}

void require_batch_size(const DataConfig& data) {
  require(data.batch_size > 0, "task = \"" + data.task +
                                   "\" needs a batch_size; the line preset = \"NAME\" begins a file with one and with "
                                   "all else that suits the task (`linnet presets`)");
}

void check_language(const Config& config) {
  const DataConfig& data = config.data;
  if (data.task == "preferences") {
    require_batch_size(data);
    const std::string& method = config.preferences.method;
    require(config.preferences.beta > 0 || method == "orpo", "beta = 0 leaves \"" + method + "\" nothing to learn");
    require(config.train.label_smoothing == 0 || method == "dpo",
        "label_smoothing is of preferences.method = \"dpo\"; \"" + method + "\" has none");
  }
  require(data.train_source.empty() && data.train_tsv.empty(),
      "task = \"" + data.task + "\" reads one text, given as `text`, but a file of pairs is given");
  require(data.token_bytes != 3, named("token_bytes", data.token_bytes) + " is neither 2 nor 4");
  require(data.batch_size > 0 || data.batch_tokens > 0, "batch_size and batch_tokens are both 0");
  check_context(config);
}

void check_texts(const Config& config) {
  check_context(config);
  require_batch_size(config.data);
}

void check_byte_size(const std::string& key, const std::string& value) {
  const std::string problem = byte_size_problem(value);
  require(problem.empty(), key + " = \"" + value + "\"" + problem);
}

void check_images(const Config& config) {
  const DataConfig& data = config.data;
  const ModelConfig& model = config.model;
  const std::string task = "task = \"" + data.task + "\"";
  require_batch_size(data);
  require(data.image_size != 1, "image_size = 1 is too small: at least 2 is needed, or 0 for images as they are");
  require(data.train_source.empty(), task + " reads no text, but a training file is given");
  require(
      data.task == "images" || config.train.label_smoothing == 0, task + " has no classes: label_smoothing must be 0");
  require(data.task != "images_regression" || config.train.class_weights.empty(), task + " has no class_weights");
  check_byte_size("image_memory", data.image_memory);
  if (model.architecture != "vit" || !model.from.empty()) return;
  check_layers(model);
  require(data.image_size % model.patch_size == 0,
      named("image_size", data.image_size) + " is not divisible by " + named("patch_size", model.patch_size));
}

void check_quantize(const Config& config) {
  if (config.train.quantize == "none") return;
  const std::string key = "quantize = \"" + config.train.quantize + "\"";
  require(config.train.device == "cpu", key + " trains on the CPU alone: it needs device = \"cpu\"");
  require(config.lora.rank == 0, key + " trains all weights: it needs lora.rank = 0");
  require(config.process.ranks == 1, key + " trains in one process");
}

// Each shard is a batch of its own.
void check_shards(const Config& config) {
  const int64_t shards = std::max<int64_t>(config.train.data_shards, 1);
  const int64_t parts = shards * std::max<int64_t>(config.train.micro_batches, 1);
  if (parts == 1) return;
  const DataConfig& data = config.data;
  const std::string into = " cannot be cut into " + (parts == shards  ? named("data_shards", shards)
                                                        : shards == 1 ? named("micro_batches", parts)
                                                                      : named("data_shards", shards) + " and " +
                                                                            named("micro_batches", parts / shards));
  require(data.batch_size % parts == 0, named("batch_size", data.batch_size) + into + " equal parts");
  const int64_t least = task_row(config).origin == ExampleOrigin::kFiles ? config.model.max_seq_len : 1;
  require(data.batch_tokens == 0 || data.batch_tokens / parts >= least, named("batch_tokens", data.batch_tokens) +
                                                                            into + " parts that hold a sentence of " +
                                                                            std::to_string(least) + " tokens each");
}

void check_shared_layers(const Config& config) {
  const TrainConfig& train = config.train;
  parse(train.parallel);  // user error if it is malformed, for any number of ranks
  // One process may use what several have trained.
  if (config.process.ranks == 1) return;
  const RankLayout division = parallel_layout(train.parallel, config.process.ranks);
  if (division.tensor == 1 && division.pipeline == 1) return;
  const std::string key = "parallel = \"" + train.parallel + "\"";
  const std::string way = division.tensor > 1 ? "tensor" : "pipeline";
  require(train.device == "cpu", key + ": " + way + " parallel runs on the CPU alone: it needs device = \"cpu\"");
  require(task_kind(config) != TaskKind::kImages, key + ": networks for images are not divided: leave " + way + " out");
  require(train.memory.empty() || train.recompute != "auto",
      key + ": ranks might choose differently what to compute again within memory: set recompute to block, " +
          "attention or none");
  require(
      !train.tensorboard, key + ": no rank has the whole gradient for the histograms: it needs tensorboard = false");
  require(train.sample_length == 0,
      key + ": samples are not written while ranks divide the model: it needs sample_length = 0");
  require(task_kind(config) != TaskKind::kTranslation || train.metric == "loss",
      key + ": nothing is translated while ranks divide the model: it needs metric = \"loss\"");
}

void check_training(const Config& config) {
  const TrainConfig& train = config.train;
  require(peak_learning_rate(config) > 0, "learning_rate must be above 0");
  require(train.epsilon > 0, "epsilon must be above 0");
  require(std::scalbn(1.0, std::ilogb(train.loss_scale)) == train.loss_scale,
      "loss_scale = " + value_text(FieldValue(train.loss_scale)) + " is not a power of two");
  if (!train.memory.empty()) check_byte_size("memory", train.memory);
  require(train.schedule == "constant" || train.final_learning_rate <= peak_learning_rate(config),
      "final_learning_rate is above learning_rate");
}
}  // namespace

RankLayout parallel_layout(const std::string& parallel, int ranks) {
  RankLayout layout = parse(parallel);
  const bool tells_data = layout.data > 0;
  layout.tensor = std::max(layout.tensor, 1), layout.pipeline = std::max(layout.pipeline, 1);
  layout.interleave = std::max(layout.interleave, 1);
  const int of_model = layout.ranks_of_model();
  if (!tells_data) layout.data = std::max(ranks / of_model, 1);
  if (int64_t{layout.data} * of_model != ranks)
    fail_user("parallel = \"", parallel, "\" does not fit ", ranks, ranks == 1 ? " rank" : " ranks",
        ": --ranks must be ",
        tells_data ? std::to_string(int64_t{layout.data} * of_model) : "a multiple of " + std::to_string(of_model));
  return layout;
}

Config of_one_shard(Config config) {
  int64_t shards = config.train.data_shards;
  if (shards == 0) shards = parallel_layout(config.train.parallel, config.process.ranks).data;
  const int64_t micro_batches = std::max<int64_t>(config.train.micro_batches, 1);
  const int64_t parts = std::max<int64_t>(shards, 1) * micro_batches;
  config.data.batch_size /= parts;
  config.data.batch_tokens /= parts;
  config.train.accumulate_steps *= micro_batches;
  config.train.micro_batches = 1;
  return config;
}

bool double_micro_batches(Config& config) {
  Config halved = config;
  halved.train.micro_batches = 2 * std::max<int64_t>(config.train.micro_batches, 1);
  try {
    validate(halved);
  } catch (const Error&) {
    return false;
  }
  config = halved;
  return true;
}

double peak_learning_rate(const Config& config) {
  if (config.train.learning_rate > 0 || task_kind(config) != TaskKind::kTexts) return config.train.learning_rate;
  return config.model.from.empty() ? 1e-3 : 5e-5;
}

void validate(const Config& config) {
  Config scratch;
  for (const ConfigKey& key : config_keys()) {
    const std::string problem = assign_field(key, scratch, field_value(key, config));
    require(problem.empty(), problem);
    check_text(key, field_value(key, config));
  }
  check_task(config);
  check_lora(config);
  check_training(config);
  check_shards(config);
  check_shared_layers(config);
  check_device(config.train);
  check_quantize(config);
  check_teacher(config);
  switch (task_kind(config)) {
    case TaskKind::kImages: return check_images(config);
    case TaskKind::kTexts: return check_texts(config);
    case TaskKind::kLanguage:
    case TaskKind::kMaskedLanguage: check_language(config); break;
    case TaskKind::kTranslation:
      check_model(config);
      check_data(config);
      break;
  }
  check_size("the parameters", parameter_count(config));
  check_size("a batch", batch_elements(config));
}
}  // namespace linnet
