// The tokenizer of a run folder, whatever its task and kind.
#pragma once
#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace linnet {

// `target`: of a run with two vocabularies that of the translations, otherwise that of the sources. User error for a
// run that reads no text.
std::shared_ptr<const Tokenizer> load_run_tokenizer(const std::string& folder, bool target);

}  // namespace linnet
