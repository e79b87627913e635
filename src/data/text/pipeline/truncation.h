// Encoded texts cut to a length and put together with the special tokens of a template.
#pragma once
#include "data/text/pipeline/pipeline.h"

namespace linnet {

// Cuts the ends off one part or two, so that they and `added` tokens more are at most options.max_length, in the way
// tokenizers does. A length that cannot be reached is a user error.
void cut_to_length(std::vector<Encoding>& parts, const EncodeOptions& options, int64_t added);

int64_t special_count(const std::vector<TemplateItem>& items);

// One part or two, cut as the options say; without options.add_special one after the other.
Encoding join_by_template(std::vector<Encoding> parts, const PostProcessing& post, const EncodeOptions& options);

}  // namespace linnet
