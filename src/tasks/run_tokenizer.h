// The tokenizer of a run folder, whatever its task and kind.
#pragma once
#include <memory>
#include <string>

#include "config/config.h"
#include "data/text/tokenizer.h"

namespace linnet {

// `target`: of a run with two vocabularies that of the translations, otherwise that of the sources. User error for a
// run that reads no text.
std::shared_ptr<const Tokenizer> load_run_tokenizer(const std::string& folder, bool target);

// Of a run of translation, and of one that reads one text.
std::shared_ptr<const Tokenizer> load_pair_tokenizer(const Config& config, const std::string& folder, bool target);
std::shared_ptr<const Tokenizer> load_text_tokenizer(const Config& config, const std::string& folder, bool target);

}  // namespace linnet
