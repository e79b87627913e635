#include "base/error.h"
#include "base/log.h"
#include "data/text/pretrained_tokenizer.h"
#include "models/families/marian.h"
#include "tasks/translation/translation_model.h"

namespace linnet {

void export_translation_run(const std::string& folder, const std::string& out) {
  const OpenedTranslationModel opened = open_translation_model(folder);
  if (!opened.pretrained)
    fail_user("the Transformer of run '" + folder +
              "' has no form that other programs load; architecture = \"t5\" or \"marian\" has");
  const ParameterLayout layout(*opened.model);
  std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()));
  opened.load_weights(layout, parameters.data());
  if (const auto* marian = dynamic_cast<const Transformer*>(opened.model.get()))
    clear_start_embedding(marian->config, layout, parameters.data());
  SaveOptions options;
  bool whole = true;
  for (const auto& tokenizer : {opened.tokenizers.source, opened.tokenizers.target}) {
    const auto* pretrained = dynamic_cast<const PretrainedTokenizer*>(tokenizer.get());
    if (pretrained) options.files.merge(pretrained->files());  // what both have is the source's
    whole = whole && pretrained != nullptr;
  }
  save_pretrained(*opened.pretrained, layout, parameters.data(), out, options);
  if (!whole)
    log_warning("the run's tokenizer has no form that other programs read: '" + out +
                "' holds configuration and weights alone");
}

}  // namespace linnet
