// "Did you mean ...?"
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace linnet {

// The candidate a user most likely meant, by the fewest edits, letter case aside, with '-' read as '_'; "" when none is
// near. Near are edits of a third of the longer word's letters, what holds `text`, and beginnings of either.
std::string nearest(std::string_view text, std::span<const std::string> candidates);

// " (did you mean "NAME"?)" of the nearest; empty when none is near.
std::string did_you_mean(std::string_view text, std::span<const std::string> candidates,
                         const std::string& before = "\"", const std::string& after = "\"");

// Amounts of memory as people write them.

// Bytes of "6GiB", "500 MB", "1.5g", "4096": B, KB, MB and GB are powers of 1000; KiB, MiB, GiB, K, M and G of 1024.
// Empty when the text is not an amount above 0.
std::optional<uint64_t> parse_byte_size(std::string_view text);
// What is wrong with an amount, to follow it in a message; "" when nothing is. Below 1 MB a unit must be given.
std::string byte_size_problem(const std::string& text);

}  // namespace linnet
