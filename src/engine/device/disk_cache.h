// What was expensive to find out and is the same on the next run: compiled kernels, the fastest of several algorithms.
// Files in the folder LINNET_CACHE, or else XDG_CACHE_HOME/linnet, or else ~/.cache/linnet.
//
// A cache may lose everything at any time and costs only time then: nothing here fails. A file that cannot be read, is
// cut short or was made for another key counts as none; a disk that is full or read-only keeps nothing.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace linnet {

// The bytes kept under `key`, which names all that they depend on (versions, the device, the operation).
// `kind`: letters, digits and '_', the beginning of the file's name.
std::optional<std::string> cached_bytes(const std::string& kind, const std::string& key);
// Replaces what was kept under `key`, in one step: other processes see the old bytes or the new.
void cache_bytes(const std::string& kind, const std::string& key, std::string_view bytes) noexcept;

}  // namespace linnet
