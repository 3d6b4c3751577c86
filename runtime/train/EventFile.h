//===- EventFile.h - Scalars for TensorBoard -------------------------------===//
//
// Part of tbc. Plain C++.
//
// An event file is a sequence of TFRecords. A record is the length of the data (64 bits,
// little-endian), the masked CRC-32C of the length, the data, and the masked CRC-32C of the data.
// The data is an Event in protobuf's wire format. Sources: tensorflow/core/lib/io/record_writer.cc,
// core/util/event.proto, core/framework/summary.proto.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_EVENTFILE_H
#define TBC_RUNTIME_TRAIN_EVENTFILE_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tbc::train {

/// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) of `bytes`. Example: "123456789" has
/// 0xe3069283. Source: RFC 3720, appendix B.4.
uint32_t crc32c(std::string_view bytes);

/// `data` as a TFRecord.
std::string tfRecord(std::string_view data);

using Scalar = std::pair<std::string, float>; // tag, value

/// An Event in protobuf's wire format. `wallSeconds`: since 1970.
std::string scalarEvent(double wallSeconds, int64_t step, const std::vector<Scalar> &scalars);

/// The event file of one run.
class EventFile {
public:
  /// Creates a new file in `folder`, and the folder. TensorBoard reads all files of a folder. It
  /// drops the events of earlier runs after step `done`, as if this run had not stopped. Errors:
  /// Other, with path and reason.
  static Result<EventFile> create(const std::string &folder, int64_t done);
  EventFile() = default;
  EventFile(EventFile &&o) noexcept { *this = std::move(o); }
  EventFile &operator=(EventFile &&o) noexcept {
    std::swap(file, o.file);
    return *this;
  }
  ~EventFile();
  /// Complete when it returns; false if it could not be written (a full disk).
  bool write(int64_t step, const std::vector<Scalar> &scalars);
  explicit operator bool() const { return file != nullptr; }

private:
  bool append(const std::string &event);
  std::FILE *file = nullptr;
};

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_EVENTFILE_H
