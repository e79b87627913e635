// Amounts of memory as people write them.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace linnet {

// Bytes of "6GiB", "500 MB", "1.5g", "4096": B, KB, MB and GB are powers of 1000; KiB, MiB, GiB, K, M and G of 1024.
// Empty when the text is not an amount above 0.
std::optional<uint64_t> parse_byte_size(std::string_view text);

}  // namespace linnet
