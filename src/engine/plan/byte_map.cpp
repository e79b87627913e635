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
    } else if (found->second.is_of_one_value(found->first)) {
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

bool ByteMap::check_row(size_t begin, size_t end, bool all, Test test) const {
  while (begin < end) {
    auto found = at(begin);
    if (found == pieces_.end()) {
      if (all) return false;
      found = pieces_.upper_bound(begin);
      if (found == pieces_.end() || found->first >= end) return false;
      begin = found->first;
    }
    const auto& [first, piece] = *found;
    const size_t stop = std::min(end, piece.end), row = piece.row_bytes(first);
    const auto holds = [&, piece = &piece](size_t from, size_t to) { return test(*piece, from, to); };
    if (in_row(row, (begin - first) % row, stop - begin, all, holds) != all) return !all;
    begin = stop;
  }
  return all;
}

bool ByteMap::check(const ByteRows& bytes, bool all, Test test) const {
  if (bytes.rows == 1) return check_row(bytes.begin, bytes.begin + bytes.width, all, test);
  if (bytes.width == 0) return all;
  for (size_t row = 0, count = 1; row < bytes.rows; row += count) {
    const size_t begin = bytes.begin + row * bytes.pitch, end = begin + bytes.width, left = bytes.rows - row;
    const auto rows_before = [&](size_t stop) {  // rows from this one on that end at `stop` or before
      return end > stop ? 0 : std::min(left, (stop - end) / bytes.pitch + 1);
    };
    const auto found = at(begin);
    if (found == pieces_.end()) {
      if (all) return false;
      const auto next = pieces_.upper_bound(begin);
      if (next == pieces_.end()) return false;
      if (count = rows_before(next->first); count > 0) continue;
    }
    bool holds = false;
    if (found != pieces_.end() && (count = rows_in(*found, bytes, begin, left)) > 0) {
      const size_t column = (begin - found->first) % bytes.pitch;
      holds = test(found->second, column, column + bytes.width);
    } else if (found != pieces_.end() && found->second.is_of_one_value(found->first) &&
               (count = rows_before(found->second.end)) > 0) {
      holds = test(found->second, 0, bytes.width);
    } else {
      holds = check_row(begin, end, all, test);
      count = 1;
    }
    if (holds != all) return !all;
  }
  return all;
}

bool ByteMap::holds(const ByteRows& bytes, Allowed allowed) const {
  return check(bytes, true, [&](const Piece& piece, size_t begin, size_t end) {
    for (const Column& column : piece.columns) {
      if (column.end <= begin) continue;
      if (begin >= end) break;
      if (column.begin > begin || !allowed(column.owner)) return false;
      begin = column.end;
    }
    return begin >= end;
  });
}

bool ByteMap::touches(const ByteRows& bytes) const {
  return check(bytes, false, [](const Piece& piece, size_t begin, size_t end) {
    return std::ranges::any_of(
        piece.columns, [&](const Column& column) { return column.begin < end && begin < column.end; });
  });
}
}  // namespace linnet
