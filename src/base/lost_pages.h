// Files that are mapped and become shorter, or unreadable, while they are in use. The system answers an access to such
// a page with SIGBUS, which ends the process. After catch_lost_pages() the page reads as zeros instead, the mapping
// counts as damaged, and whoever has computed with it asks before an answer counts.
//
// A mapping is known by the address where the file begins. Its owner watches it and every other range of memory where
// pages of the file lie.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace linnet {

// For programs, at their start: a library leaves the signals of its host alone.
void catch_lost_pages();

// [begin, begin + bytes) holds pages of the file at `path` that is mapped at `mapping`. Beyond some thousand ranges at
// a time further ones are not watched.
void watch_pages(const std::string& path, const void* mapping, const void* begin, size_t bytes);
void unwatch_pages(const void* mapping);  // before the mapping is given back
// User error that names the file, if the mapping has lost a page.
void check_lost_pages(const void* mapping);

// Grows whenever a page is lost in a range that had all of them.
uint64_t count_lost_pages();
// User error that names one of the files, if any mapping of this process has lost a page so far.
void check_lost_pages();

}  // namespace linnet
