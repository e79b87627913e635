// Small files, read and written in one piece.
#pragma once
#include <string>
#include <string_view>

namespace linnet {

// A missing or unreadable file is a user error.
std::string read_whole_file(const std::string& path);

// Writes path + ".tmp", syncs and renames it: afterwards there is the old file or the new one. A full or read-only disk
// is a system error, and the temporary file is gone.
void write_whole_file(const std::string& path, std::string_view bytes);

}  // namespace linnet
