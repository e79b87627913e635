// One prompt with its settings, as `linnet generate` takes it.
#pragma once
#include "base/enum_names.h"
#include "generation/beam_search.h"
#include "generation/sampling.h"
#include "generation/text_grammar.h"
#include "models/families/generation_config.h"
#include "tasks/language/language_model.h"
#include "tasks/model_load.h"
#include "tasks/translation/tokenizer_pair.h"

namespace linnet {
// Generation settings: the user's, else the model author's (generation_config.json), else defaults.
struct TextGenerationOptions : ModelLoad {
  // If unset, generation_config.json decides; if that has no value either, the default in the comment.
  std::optional<int64_t> max_tokens;                                 // 200
  std::optional<int64_t> beams;                                      // 1: sampling
  std::optional<double> temperature, top_p;                          // 1
  std::optional<int64_t> top_k;                                      // 0: all
  std::optional<double> repetition_penalty;                          // 1
  std::optional<double> frequency_penalty, presence_penalty, min_p;  // 0
  std::vector<std::pair<int32_t, double>> logit_bias;                // (token, added to its logit)
  std::shared_ptr<const TextGrammar> grammar;                        // null: any text
  std::optional<double> length_penalty;                              // 1
  uint64_t seed = 1;
  std::vector<std::string> stop;   // end a text before them
  bool log_probabilities = false;  // of generated tokens
  int64_t samples = 1;             // texts that continue the same prompt with different random draws
  bool no_cache = false, ignore_end = false;
  std::string adapter;       // of a request, see find_adapter()
  Languages languages = {};  // of a translation
};

struct GenerationChoice {
  int64_t max_tokens = 200, beams = 1;
  SamplingOptions sampling;
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::kLikely;
  bool forced_end = false;  // the last token is always the end (encoder-decoders)
  TextRules rules;          // of the model's author
  std::vector<int32_t> ends;
  bool default_temperature = false;  // neither the user nor the model's author set the temperature
};

// Besides the options: the author's generation_config.json in `folder`, and tokens that end a text or exist.
struct GenerationBasis {
  std::string folder;
  GenerationConfig author;
  std::vector<int32_t> ends;
  int64_t prompt_tokens = 0;
  bool warn = true;  // of unsupported settings by the model's author
};

// User error for options that exclude each other. Warns of settings by the author that Linnet does not support.
GenerationChoice choose_generation(const TextGenerationOptions& options, const GenerationBasis& basis);

class Json;
class JsonObject;

struct TextRequest {
  std::string prompt = {};
  std::string messages = {};         // instead of the prompt: a conversation as JSON, for the folder's chat template
  std::string tools = {};            // of the conversation: functions as JSON, for the template; "" for none
  std::vector<int32_t> tokens = {};  // instead of the prompt: token ids
  bool has_tokens = false;
  TextGenerationOptions options = {};
  std::string id = {};     // JSON repeated in its results; "" for none
  std::string where = {};  // begins messages: "the prompt", "'requests.jsonl', line 3"
};

// Parses {"prompt": TEXT}, {"messages": [...]} or {"tokens": [ids]} with "id" and the command line's settings, by
// default those of `defaults`; with `text` this key's text instead of these three. User errors begin with `where`.
TextRequest parse_text_request(
    std::string_view line, const TextGenerationOptions& defaults, const std::string& where, const char* text = nullptr);
// Reads settings that the command line and the server share. Absent ones stay as they are.
void read_text_options(const JsonObject& json, TextGenerationOptions& options);
// Reads OpenAI's "messages" and "tools".
void read_messages(const JsonObject& json, TextRequest& request);
void read_tools(const JsonObject& json, TextRequest& request);
bool is_token_list(const Json& value);  // ids, at least one
// One request for each line that is not empty.
std::vector<TextRequest> parse_text_requests(
    std::string_view lines, const TextGenerationOptions& defaults, const std::string& name);
// One request for each line, whose text is the prompt.
std::vector<TextRequest> split_prompts(
    std::string_view lines, const TextGenerationOptions& defaults, const std::string& name);

// A one-question conversation after an optional system message; JSON for TextRequest::messages.
std::string ask(const std::string& question, const std::string& system);

enum class TextEnd { kEndToken, kStopText, kLength, kInterrupted };
template <> inline constexpr std::array kEnumNames<TextEnd>{"end_token", "stop", "length", "interrupted"};

struct WrittenText {
  std::string text;
  std::vector<int32_t> tokens;           // without the end
  std::vector<float> log_probabilities;  // of each token and the end token, if requested; empty for a search
  double log_probability = 0;            // sum of them, if requested
  int32_t end_token = -1;
  TextEnd end = TextEnd::kLength;
};

std::string format_written_text(const WrittenText& written, const TextRequest& request, int64_t index, int64_t sample,
    const std::vector<int32_t>& prompt, bool echo);
}  // namespace linnet
