// What a text's perplexity is told by.
#pragma once
#include <cstdint>
#include <string_view>

namespace linnet {

// Runs of characters other than white space (Unicode).
int64_t count_words(std::string_view text);

// exp(nats / count), infinite where that is beyond a double; NaN for no count.
double perplexity(double nats, int64_t count);

}  // namespace linnet
