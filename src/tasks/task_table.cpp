#include "tasks/task_table.h"
#include <fmt/format.h>
#include "base/fail.h"
#include "base/files.h"
#include "base/numbers.h"
#include "base/process.h"
#include "config/hints.h"
#include "formats/safetensors.h"
#include "models/families/pretrained.h"
#include "models/nn/model_file.h"
#include "models/nn/parameter_file.h"
#include "onnx/network.h"
#include "tasks/images/image_session.h"
#include "tasks/language/language_model.h"
#include "tasks/masked/masked_task.h"
#include "tasks/texts/text_session.h"
#include "tasks/translation/tokenizer_pair.h"
#include "training/run/pretrained_run.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
std::unique_ptr<SessionTask> make_decoder_task(const Config& config) {
  const std::string& task = config.data.task;
  return task == "chat"          ? make_chat_task(config)
         : task == "preferences" ? make_preference_task(config)
                                 : make_language_task(config);
}

std::shared_ptr<const Tokenizer> load_pair_tokenizer(const Config& config, const std::string& folder, bool target) {
  const TokenizerPair pair = load_tokenizers(config, folder);
  return target ? pair.target : pair.source;
}

std::shared_ptr<const Tokenizer> load_text_tokenizer(const Config&, const std::string& folder, bool) {
  if (file_exists(folder + "/tokenizer")) return open_run_tokenizer(folder);
  if (file_exists(folder + "/tokenizer.numbers"))
    fail_user("run '", folder, "' was trained on token numbers: it has no tokenizer");
  return load_tokenizer(folder, "tokenizer");
}

constexpr std::array kActions{
    TaskActions{.kind = TaskKind::kTranslation,
        .make = make_translation_task,
        .evaluate = evaluate_translation,
        .score = open_translation_scorer,
        .tokenizer = load_pair_tokenizer,
        .inspect = inspect_translation,
        .export_model = export_translation_run},
    TaskActions{.kind = TaskKind::kLanguage,
        .make = make_decoder_task,
        .evaluate = evaluate_language,
        .no_translation = "learned to write text, not translation; `linnet generate` lets it",
        .score = open_language_scorer,
        .tokenizer = load_text_tokenizer,
        .inspect = inspect_language_model,
        // open_language_model() refuses folders that are no language model.
        .export_model = [](const std::string& folder,
                            const std::string& out) { export_language_model(open_language_model(folder), out); }},
    TaskActions{.kind = TaskKind::kMaskedLanguage,
        .make = make_masked_task,
        .evaluate = evaluate_masked,
        .no_translation = "learned to find masked tokens, not translation",
        .no_score = "learned to find masked tokens, which gives a text no probability",
        .tokenizer = load_text_tokenizer,
        .inspect = inspect_masked_model,
        .export_model = export_pretrained_run},
    TaskActions{.kind = TaskKind::kTexts,
        .make = make_text_task,
        .evaluate = evaluate_texts,
        .no_translation = "learned to label texts, not translation",
        .no_score =
            "learned to label or embed texts, which gives a text no probability (`linnet predict`, `linnet embed`)",
        .predict = predict_texts,
        .tokenizer = load_text_tokenizer,
        .inspect = inspect_classifier,
        .export_model = export_classification_run},
    TaskActions{.kind = TaskKind::kImages,
        .make = make_image_task,
        .evaluate = evaluate_images,
        .no_translation = "learned to tell images apart, not translation",
        .no_score = "learned to label images, which gives a text no probability; `linnet predict` labels them",
        .predict = predict_images,
        .no_tokenizer = "reads images, not text: it has no tokenizer",
        .no_inspection = "classifies images; `linnet inspect` looks at models of text",
        .export_model = export_image_run},
};

std::unique_ptr<SessionTask> open_task(const Config& config, const std::string& from) {
  if (from.empty()) check_first_model(config);
  const auto memory = config.train.device == "cpu" ? parse_byte_size(config.train.memory) : std::nullopt;
  const MemoryLimit limit(memory.value_or(available_memory()));
  std::unique_ptr<SessionTask> task = task_actions(config).make(config);
  task->open(from);
  return task;
}

std::string line(const char* name, const std::string& value) { return fmt::format("{:<16}  {}\n", name, value); }

std::string model_text(const Config& config, const std::string& folder) {
  const ModelConfig& m = config.model;
  if (!m.from.empty()) return fmt::format("{}, started from '{}'", m.architecture, m.from);
  if (m.architecture == "cnn" || m.architecture == "resnet" || m.architecture == "vit") {
    std::string text = fmt::format("{} of depth {}", m.architecture, m.depth);
    if (m.architecture == "cnn") text = fmt::format("{}, {} filters", m.architecture, m.filters);
    if (m.architecture == "vit")
      text = fmt::format("vit, {} layers of width {}, {} heads, patches of {} x {}", m.num_encoder_layers, m.d_model,
          m.num_heads, m.patch_size, m.patch_size);
    if (!file_exists(folder + "/images.json")) return text;
    const ImageFormat format = ImageFormat::load(folder);
    return text + fmt::format(", images of {} x {} x {} {} {} {}", format.height, format.width, format.channels,
                      format.problem == TextProblem::kOneClass ? "in" : "with", format.class_names.size(),
                      format.problem == TextProblem::kOneClass ? "classes" : "outputs");
  }
  const std::string layers = m.architecture == "bert" ? std::to_string(m.num_encoder_layers)
                             : m.architecture == "gpt" || m.architecture == "llama"
                                 ? std::to_string(m.num_decoder_layers)
                                 : fmt::format("{} + {}", m.num_encoder_layers, m.num_decoder_layers);
  return fmt::format("{}, {} layers of width {}, {} heads, {} in the feed-forward layers", m.architecture, layers,
      m.d_model, m.num_heads, m.d_ff);
}

std::string data_text(const Config& config) {
  const DataConfig& data = config.data;
  for (const std::string& path : {data.train_tsv, data.train_source, data.text})
    if (!path.empty()) return data_path(data, path);
  return task_row(config).origin == ExampleOrigin::kFiles ? data.data_dir : "made by the program";
}

std::string parameters_text(const SafetensorsFile& weights) {
  auto count =
      sum_of<int64_t>(weights.entries(), [](const SafetensorsEntry& entry) { return entry.type.shape.elements(); });
  if (const auto frozen = FrozenWeights::beside(weights, FrozenWeights::Check::kShapes))
    count += frozen->parameter_count();
  return std::to_string(count);
}

double number(const SafetensorsFile& state, const char* key) {
  return parse_number<double>(find_or(state.metadata(), key, "0")).value_or(0);
}

std::string training_text(const SafetensorsFile& state, const TrainConfig& train) {
  const auto step = static_cast<int64_t>(number(state, "step")),
             best = static_cast<int64_t>(number(state, "best_step"));
  const double seconds = number(state, "seconds");
  const bool out_of_time = train.max_minutes > 0 && seconds >= 60 * train.max_minutes && step < train.max_steps;
  std::string text = line("trained", fmt::format("{} of {} steps, {:.0f} s{}", step, train.max_steps, seconds,
                                         out_of_time ? ", then max_minutes was over" : ""));
  if (best == 0) return text + line("best", "not evaluated yet");
  const std::string metric =
      train.metric == "loss" ? "" : fmt::format("{} {:.4f}, ", train.metric, number(state, "best_metric"));
  return text + line("best", fmt::format("step {}: {}loss {:.4f}", best, metric, number(state, "best_loss")));
}
}  // namespace

void check_first_model(const Config& config) {
  const std::string &folder = config.model.from, named = "model.from = \"" + folder + "\": ";
  // load_onnx() reports errors of network files.
  const bool is_network =
      task_kind(config) == TaskKind::kImages || (task_kind(config) == TaskKind::kTexts && is_onnx_path(folder));
  if (folder.empty() || is_network) return;
  if (!file_exists(folder))
    fail_user(named, "there is no such folder; --set model.from=FOLDER names the model to start from");
  if (RunFolder(folder).has_config())
    fail_user(named, "this is a run folder; --init starts from one, and `linnet export` makes a model folder of it");
  if (!is_pretrained_folder(folder))
    fail_user(named, "not a model folder, which has a config.json with a \"model_type\"");
}

const TaskActions& task_actions(const Config& config) {
  return *std::ranges::find(kActions, task_kind(config), &TaskActions::kind);
}

std::unique_ptr<TrainingTask> make_training_task(Config& config, const std::string& from) {
  std::unique_ptr<SessionTask> task = open_task(of_one_shard(config), from);
  const bool may_cut = config.train.micro_batches == 0;
  if (may_cut) config.train.micro_batches = 1;
  for (;;) {
    try {
      task->prepare(Capacity::kMustSuffice);
      return task;
    } catch (const DoesNotFit&) {
      if (!may_cut || !double_micro_batches(config)) throw;
      task->set_batches(of_one_shard(config));
    }
  }
}

std::unique_ptr<TrainingTask> start_training_task(const Config& config, const std::string& from) {
  std::unique_ptr<SessionTask> task = open_task(config, from);
  task->prepare(Capacity::kMustSuffice);
  task->take_memory();
  task->initialize();
  return task;
}

std::shared_ptr<const Tokenizer> load_run_tokenizer(const std::string& folder, bool target) {
  const Config config = RunFolder(folder).load_config();
  const TaskActions& task = task_actions(config);
  if (!task.tokenizer) fail_user("run '", folder, "' ", task.no_tokenizer);
  return task.tokenizer(config, folder, target);
}

std::string describe_run(const std::string& folder) {
  const RunFolder run(folder);
  const Config config = run.load_config();
  std::string text = line("run", folder);
  text += line("task", task_row(config).description);
  text += line("model", model_text(config, folder));
  text += line("data", data_text(config));
  const auto packed = ParameterFile::open(folder);
  if (packed) {
    packed->check_weights();
    text += line("packed", packed->words().text());
  }
  if (!packed && file_exists(run.model_path()))
    text += line("parameters", parameters_text(SafetensorsFile(run.model_path())));
  if (run.has_state()) text += training_text(SafetensorsFile(run.state_path()), config.train);
  else if (!packed)  // packed models have no training state
    text += line("trained", file_exists(run.model_path()) ? "only the weights are saved" : "nothing saved yet");
  return text + line("size", fmt::format("{:.1f} MB", static_cast<double>(size_on_disk(folder)) / 1e6));
}
}  // namespace linnet
