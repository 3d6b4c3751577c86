//===- EventFile.cpp - Scalars for TensorBoard -----------------------------===//

#include "runtime/train/EventFile.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <unistd.h>

namespace tbc::train {

static constexpr std::array<uint32_t, 256> makeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit)
      value = value & 1 ? value >> 1 ^ 0x82f63b78u : value >> 1;
    table[i] = value;
  }
  return table;
}

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> table = makeTable();
  uint32_t crc = ~0u;
  for (char byte : bytes)
    crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

template <typename T> static void appendRaw(std::string &text, T value) {
  char bytes[sizeof value]; // little-endian, like all supported platforms
  std::memcpy(bytes, &value, sizeof value);
  text.append(bytes, sizeof value);
}

/// A file of records may contain checksums as data. They are rotated and shifted, because a
/// checksum of plain checksums is weak.
static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

std::string tfRecord(std::string_view data) {
  std::string record;
  appendRaw(record, uint64_t(data.size()));
  appendRaw(record, masked(crc32c(record)));
  record += data;
  appendRaw(record, masked(crc32c(data)));
  return record;
}

//===----------------------------------------------------------------------===//
// Protobuf's wire format
//===----------------------------------------------------------------------===//

namespace {
enum WireType { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

/// Numbers of fields of Event, Summary, Summary.Value and SessionLog.
enum EventField { WallTime = 1, Step = 2, FileVersion = 3, SummaryOf = 5, SessionLog = 7 };
enum SummaryField { ValueOf = 1 };
enum ValueField { Tag = 1, SimpleValue = 2 };
enum SessionLogField { SessionStatus = 1 };
constexpr uint64_t sessionStart = 1;
} // namespace

static void appendVarint(std::string &text, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    text += char(value | 0x80);
  text += char(value);
}

static void appendKey(std::string &text, int field, WireType type) {
  appendVarint(text, uint64_t(field) << 3 | uint64_t(type));
}

static void appendBytes(std::string &text, int field, std::string_view bytes) {
  appendKey(text, field, Bytes);
  appendVarint(text, bytes.size());
  text += bytes;
}

static std::string eventAt(double wallSeconds, int64_t step) {
  std::string event;
  appendKey(event, WallTime, Fixed64);
  appendRaw(event, wallSeconds);
  appendKey(event, Step, Varint);
  appendVarint(event, uint64_t(step));
  return event;
}

std::string scalarEvent(double wallSeconds, int64_t step, const std::vector<Scalar> &scalars) {
  std::string summary;
  for (const auto &[tag, number] : scalars) {
    std::string value;
    appendBytes(value, Tag, tag);
    appendKey(value, SimpleValue, Fixed32);
    appendRaw(value, number);
    appendBytes(summary, ValueOf, value);
  }
  std::string event = eventAt(wallSeconds, step);
  appendBytes(event, SummaryOf, summary);
  return event;
}

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

static double wallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Result<EventFile> EventFile::create(const std::string &folder, int64_t done) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  // The step makes names differ for two runs with the same second and process id.
  std::string name = "events.out.tfevents." + std::to_string(int64_t(wallSeconds())) + "." + host +
                     "." + std::to_string(getpid()) + "." + std::to_string(done);
  std::string path = (std::filesystem::path(folder) / name).string();
  EventFile events;
  events.file = std::fopen(path.c_str(), "we");
  std::string version = eventAt(wallSeconds(), 0);
  appendBytes(version, FileVersion, "brain.Event:2");
  std::string session, start = eventAt(wallSeconds(), done + 1);
  appendKey(session, SessionStatus, Varint);
  appendVarint(session, sessionStart);
  appendBytes(start, SessionLog, session);
  if (!events.file || !events.append(version) || (done > 0 && !events.append(start)))
    return Error{ErrorCode::Other, "cannot write --tensorboard " + path + ": " + strerror(errno)};
  return events;
}

EventFile::~EventFile() {
  if (file)
    std::fclose(file);
}

bool EventFile::append(const std::string &event) {
  std::string record = tfRecord(event);
  return std::fwrite(record.data(), 1, record.size(), file) == record.size() &&
         std::fflush(file) == 0;
}

bool EventFile::write(int64_t step, const std::vector<Scalar> &scalars) {
  return append(scalarEvent(wallSeconds(), step, scalars));
}

} // namespace tbc::train
