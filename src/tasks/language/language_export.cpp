#include "base/error.h"
#include "base/log.h"
#include "models/families/decoder_family.h"
#include "models/modules/text_decoder.h"
#include "tasks/language/language_model.h"

namespace linnet {

void export_language_model(const OpenedLanguageModel& opened, const std::string& out) {
  if (!opened.is_run && opened.coder->pretrained_files().empty())
    fail_user("'" + opened.folder + "' holds no tokenizer of a kind that Linnet knows");
  const ParameterLayout layout(*opened.model);
  std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()));
  opened.load_weights(layout, parameters.data());
  const SaveOptions options{.files = opened.coder->pretrained_files()};
  if (opened.pretrained) {
    save_pretrained(*opened.pretrained, layout, parameters.data(), out, options);
  } else {
    const DecoderConfig& own = static_cast<const TextDecoder&>(*opened.model).config;  // what a run describes is one
    ConfigFile config = decoder_config_file(opened.model_type, own);
    // Other programs take the ids of well-known models where a file names none.
    for (const auto& [key, token] :
         {std::pair{"bos_token_id", opened.coder->start()}, {"eos_token_id", opened.coder->separator()}})
      token < 0 ? config.set_null(key) : config.set(key, token);
    save_pretrained(new_pretrained(config), layout, parameters.data(), out, options);
  }
  if (options.files.empty())
    log_warning("a tokenizer of single characters has no form that other programs read: '" + out +
                "' holds configuration and weights alone");
}

}  // namespace linnet
