// Mapped files that become shorter or unreadable while in use. The system answers an access to such a page with SIGBUS,
// which ends the process. After catch_lost_pages() the page reads as zeros and the mapping counts as damaged; callers
// must check it before they use what they computed. A mapping is identified by the address of the file's first byte.
// Its owner watches it and every other range of memory with pages of the file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace linnet {
// For programs, at their start. A library must not change its host's signal handlers.
void catch_lost_pages();

// [begin, begin + bytes) holds pages of the file at `path` that is mapped at `mapping`. Beyond some thousand ranges at
// a time further ones are not watched.
void watch_pages(const std::string& path, const void* mapping, const void* begin, size_t bytes);
void unwatch_pages(const void* mapping);  // before the mapping is given back
// Throws a user error that names the file if the mapping has lost a page.
void check_lost_pages(const void* mapping);

uint64_t count_lost_pages();  // counts lost pages in ranges that were intact before
// Throws a user error that names one of the files if any mapping of this process has lost a page.
void check_lost_pages();
}  // namespace linnet
