#include "engine/plan/byte_map.h"
#include <algorithm>
#include <iterator>
#include <utility>

namespace linnet {
namespace {
// Splits bytes [begin, begin + length) by rows of `row` bytes, and returns whether body(begin, end), relative to a row,
// holds for `all` of the parts or for any.
template <class Body> bool in_row(size_t row, size_t begin, size_t length, bool all, const Body& body) {
  if (length >= row) return body(0, row);
  if (begin + length <= row) return body(begin, begin + length);
  const bool tail = body(begin, row);
  return tail != all ? tail : body(0, begin + length - row);
}
}  // namespace

ByteMap::Pieces::const_iterator ByteMap::at(size_t byte) const {
  const auto next = pieces_.upper_bound(byte);
  if (next == pieces_.begin()) return pieces_.end();
  const auto found = std::prev(next);
  return found->second.end > byte ? found : pieces_.end();
}

void ByteMap::split(size_t byte) {
  const auto found = at(byte);
  if (found == pieces_.end() || found->first == byte) return;
  const size_t begin = found->first;
  const Piece piece = std::move(pieces_.extract(found).mapped());
  const auto add = [&](size_t from, size_t to, size_t pitch, size_t first, size_t last) {
    Piece part{to, pitch, {}};
    for (const Column& column : piece.columns)
      if (column.begin < last && column.end > first)
        part.columns.push_back(
            {std::max(column.begin, first) - first, std::min(column.end, last) - first, column.owner});
    if (from < to && !part.columns.empty()) pieces_.insert_or_assign(from, std::move(part));
  };
  const size_t row = piece.row_bytes(begin), column = (byte - begin) % row, start = byte - column, stop = start + row;
  add(begin, start, piece.pitch, 0, row);
  if (column == 0) return add(start, piece.end, piece.pitch, 0, row);
  add(start, byte, 0, 0, column);
  add(byte, stop, 0, column, row);
  add(stop, piece.end, piece.pitch, 0, row);
}

void ByteMap::set(std::vector<Column>& columns, Column column) {
  std::vector<Column> next;
  const auto keep = [&](Column part) {
    if (part.begin < part.end) next.push_back(part);
  };
  for (const Column& old : columns) keep({old.begin, std::min(old.end, column.begin), old.owner});
  keep(column);
  for (const Column& old : columns) keep({std::max(old.begin, column.end), old.end, old.owner});
  columns = std::move(next);
}

size_t ByteMap::rows_in(const Pieces::value_type& piece, const ByteRows& bytes, size_t begin, size_t rows) {
  if (piece.second.pitch != bytes.pitch) return 0;
  const size_t column = (begin - piece.first) % bytes.pitch;
  if (column + bytes.width > bytes.pitch) return 0;
  return std::min(rows, (piece.second.end - (begin - column)) / bytes.pitch);
}

void ByteMap::write_row(size_t begin, size_t end, ValueId owner) {
  if (begin == end) return;
  split(begin);
  split(end);
  pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(end));
  pieces_.insert_or_assign(begin, Piece{end, 0, {{0, end - begin, owner}}});
}

void ByteMap::write(const ByteRows& bytes, ValueId owner) {
  if (bytes.rows == 1) return write_row(bytes.begin, bytes.begin + bytes.width, owner);
  const size_t pitch = bytes.pitch, width = bytes.width;
  if (width == 0) return;
  for (size_t row = 0; row < bytes.rows;) {
    const size_t begin = bytes.begin + row * pitch, left = bytes.rows - row;
    const auto found = at(begin);
    if (const size_t count = found == pieces_.end() ? 0 : rows_in(*found, bytes, begin, left); count > 0) {
      const size_t column = (begin - found->first) % pitch, start = begin - column;
      split(start);
      split(start + count * pitch);
      set(pieces_.at(start).columns, {column, column + width, owner});
      row += count;
      continue;
    }
    // Rows become a grid if one value, or none, has all of their bytes and those between them.
    size_t limit = begin;
    ValueId before = kNone;
    if (found == pieces_.end()) {
      const auto next = pieces_.upper_bound(begin);
      limit = next == pieces_.end() ? SIZE_MAX : next->first;
    } else if (found->second.pitch == 0 && found->second.columns.size() == 1 && found->second.columns[0].begin == 0 &&
               found->second.columns[0].end == found->second.end - found->first) {
      limit = found->second.end, before = found->second.columns[0].owner;
    }
    const size_t count = std::min(left, (limit - begin) / pitch);
    if (count < 2) {
      write_row(begin, begin + width, owner);
      ++row;
      continue;
    }
    Piece grid{begin + count * pitch, pitch, {}};
    if (found != pieces_.end()) {
      grid.columns = {{0, pitch, before}};
      split(begin);
      split(grid.end);
    }
    set(grid.columns, {0, width, owner});
    pieces_.insert_or_assign(begin, std::move(grid));
    row += count;
  }
}

bool ByteMap::covers(const Piece& piece, size_t begin, size_t end, Allowed allowed) {
  for (const Column& column : piece.columns) {
    if (column.end <= begin) continue;
    if (begin >= end) break;
    if (column.begin > begin || !allowed(column.owner)) return false;
    begin = column.end;
  }
  return begin >= end;
}

bool ByteMap::meets(const Piece& piece, size_t begin, size_t end) {
  return std::any_of(piece.columns.begin(), piece.columns.end(),
      [&](const Column& column) { return column.begin < end && begin < column.end; });
}

bool ByteMap::holds_row(size_t begin, size_t end, Allowed allowed) const {
  while (begin < end) {
    const auto found = at(begin);
    if (found == pieces_.end()) return false;
    const size_t first = found->first;
    const Piece& piece = found->second;
    const size_t stop = std::min(end, piece.end), row = piece.row_bytes(first);
    if (!in_row(row, (begin - first) % row, stop - begin, true,
            [&](size_t from, size_t to) { return covers(piece, from, to, allowed); }))
      return false;
    begin = stop;
  }
  return true;
}

bool ByteMap::holds(const ByteRows& bytes, Allowed allowed) const {
  if (bytes.rows == 1) return holds_row(bytes.begin, bytes.begin + bytes.width, allowed);
  if (bytes.width == 0) return true;
  for (size_t row = 0; row < bytes.rows;) {
    const size_t begin = bytes.begin + row * bytes.pitch, left = bytes.rows - row;
    const auto found = at(begin);
    if (found == pieces_.end()) return false;
    const size_t first = found->first;
    const Piece& piece = found->second;
    if (const size_t count = rows_in(*found, bytes, begin, left); count > 0) {
      const size_t column = (begin - first) % bytes.pitch;
      if (!covers(piece, column, column + bytes.width, allowed)) return false;
      row += count;
    } else if (piece.pitch == 0 && piece.columns.size() == 1 && begin + bytes.width <= piece.end) {
      const size_t count = std::min(left, (piece.end - begin - bytes.width) / bytes.pitch + 1);
      const size_t last = begin + (count - 1) * bytes.pitch + bytes.width;
      // One column: what holds for the first and the last row holds for those between them.
      if (!covers(piece, begin - first, begin - first + bytes.width, allowed) ||
          !covers(piece, last - bytes.width - first, last - first, allowed))
        return false;
      row += count;
    } else {
      if (!holds_row(begin, begin + bytes.width, allowed)) return false;
      ++row;
    }
  }
  return true;
}

bool ByteMap::touches_row(size_t begin, size_t end) const {
  auto found = at(begin);
  if (found == pieces_.end()) found = pieces_.upper_bound(begin);
  for (; found != pieces_.end() && found->first < end; ++found) {
    const size_t first = found->first;
    const Piece& piece = found->second;
    const size_t from = std::max(begin, first), stop = std::min(end, piece.end), row = piece.row_bytes(first);
    if (from < stop &&
        in_row(row, (from - first) % row, stop - from, false, [&](size_t b, size_t e) { return meets(piece, b, e); }))
      return true;
  }
  return false;
}

bool ByteMap::touches(const ByteRows& bytes) const {
  if (bytes.rows == 1) return touches_row(bytes.begin, bytes.begin + bytes.width);
  for (size_t row = 0; row < bytes.rows;) {
    const size_t begin = bytes.begin + row * bytes.pitch, left = bytes.rows - row;
    const auto found = at(begin);
    if (found == pieces_.end()) {
      const auto next = pieces_.upper_bound(begin);
      if (next == pieces_.end()) return false;
      if (begin + bytes.width <= next->first) {
        row += std::min(left, (next->first - begin - bytes.width) / bytes.pitch + 1);
        continue;
      }
    } else if (const size_t count = rows_in(*found, bytes, begin, left); count > 0) {
      const size_t column = (begin - found->first) % bytes.pitch;
      if (meets(found->second, column, column + bytes.width)) return true;
      row += count;
      continue;
    }
    if (touches_row(begin, begin + bytes.width)) return true;
    ++row;
  }
  return false;
}
}  // namespace linnet
