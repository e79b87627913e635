#include "base/error.h"
#include <locale.h>
#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <string_view>
#include "base/text.h"

namespace linnet {
namespace {
constexpr size_t kHead = 1500, kTail = 500;  // kept of a longer message: beginning, end

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }
}  // namespace

std::string one_line(std::string message) {
  for (size_t i = 0; i < message.size(); ++i) {
    const std::string_view rest = std::string_view(message).substr(i);
    size_t bytes = rest[0] >= 0 && (rest[0] < ' ' || rest[0] == '\x7F') ? 1 : 0;
    if (rest.starts_with("\xC2") && rest.size() > 1 && continues_character(rest[1]) && rest[1] < '\xA0') bytes = 2;
    if (rest.starts_with("\xE2\x80\xA8") || rest.starts_with("\xE2\x80\xA9")) bytes = 3;  // line, paragraph
    std::fill_n(message.begin() + i, bytes, ' ');
  }
  if (message.size() <= kHead + kTail) return message;
  size_t head = kHead, tail = message.size() - kTail;
  while (head > 0 && continues_character(message[head])) --head;
  while (tail < message.size() && continues_character(message[tail])) ++tail;
  return message.substr(0, head) + " ... " + message.substr(tail);
}

std::string printed(const char* format, ...) {
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  const locale_t before = ::uselocale(plain);  // the host's may write 1,5
  va_list values, again;
  va_start(values, format);
  va_copy(again, values);
  std::string text(std::vsnprintf(nullptr, 0, format, values), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  va_end(values);
  ::uselocale(before);
  return text;
}

void fail_user(const std::string& message) { throw Error(ErrorKind::kUser, one_line(message)); }

void fail_system(const std::string& message) { throw Error(ErrorKind::kSystem, one_line(message)); }

void fail_errno(const std::string& message) {
  const int code = errno;
  fail_system(code ? message + ": " + std::strerror(code) : message);
}

void fail_internal(const std::string& message) { throw Error(ErrorKind::kInternal, message); }

int exit_code(ErrorKind kind) { return kind == ErrorKind::kInternal ? 70 : kind == ErrorKind::kNumeric ? 3 : 2; }
}  // namespace linnet
