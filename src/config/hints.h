// "Did you mean ...?" and amounts of memory.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace linnet {
// The nearest candidate by edit distance, ignoring case and reading '-' as '_'; "" if none is near: within a third of
// the longer word's letters, containing `text`, or one the beginning of the other.
std::string nearest(std::string_view text, std::span<const std::string> candidates);

// " (did you mean "NAME"?)" with the nearest; empty if none is near.
std::string did_you_mean(std::string_view text, std::span<const std::string> candidates,
    const std::string& before = "\"", const std::string& after = "\"");

// Bytes of "6GiB", "1.5g" or "4096"; empty unless above 0. KB, MB, GB: powers of 1000; KiB, MiB, GiB, K, M, G: of 1024.
std::optional<uint64_t> parse_byte_size(std::string_view text);
// The end of a message about a bad amount; "" if it is good. Below 1 MB a unit is required.
std::string byte_size_problem(const std::string& text);
}  // namespace linnet
