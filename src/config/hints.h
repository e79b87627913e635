// "Did you mean ...?"
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace linnet {

// The candidate a user most likely meant: the fewest edits, letter case aside, and '-' read as '_'; a candidate that
// holds all of `text` counts as near. Empty only when there are no candidates.
std::string nearest(std::string_view text, std::span<const std::string> candidates);

// Amounts of memory as people write them.

// Bytes of "6GiB", "500 MB", "1.5g", "4096": B, KB, MB and GB are powers of 1000; KiB, MiB, GiB, K, M and G of 1024.
// Empty when the text is not an amount above 0.
std::optional<uint64_t> parse_byte_size(std::string_view text);

}  // namespace linnet
