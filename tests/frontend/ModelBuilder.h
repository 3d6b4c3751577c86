//===- ModelBuilder.h - Small ONNX models for tests ------------------------===//

#ifndef TBC_TESTS_FRONTEND_MODELBUILDER_H
#define TBC_TESTS_FRONTEND_MODELBUILDER_H

#include "frontend/onnx/Import.h"

#include "onnx/onnx.pb.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tbc::test {

/// A folder that is removed with its content.
class TemporaryFolder {
public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;
  std::string path(const std::string &name) const { return (folder / name).string(); }
  /// Writes a file and returns its path.
  std::string write(const std::string &name, const std::string &bytes) const;

private:
  std::filesystem::path folder;
};

/// A model under construction: one float or int64 input after the other, nodes, float initializers.
class ModelBuilder {
public:
  explicit ModelBuilder(int64_t opset = 18);

  /// `dims` are sizes or names ("batch").
  void input(const std::string &name, const std::vector<std::string> &dims, bool isFloat = true);
  void output(const std::string &name);
  void floats(const std::string &name, const std::vector<int64_t> &dims,
              const std::vector<float> &values);
  void ints(const std::string &name, const std::vector<int64_t> &dims,
            const std::vector<int64_t> &values);
  /// A float initializer in an external file.
  onnx::TensorProto &external(const std::string &name, const std::vector<int64_t> &dims,
                              const std::string &location, const std::string &offset,
                              const std::string &length);
  onnx::NodeProto &node(const std::string &type, const std::vector<std::string> &inputs,
                        const std::vector<std::string> &outputs, const std::string &name = "");
  static void attr(onnx::NodeProto &node, const std::string &name, int64_t value);
  static void attr(onnx::NodeProto &node, const std::string &name,
                   const std::vector<int64_t> &values);
  static void attr(onnx::NodeProto &node, const std::string &name, const std::string &value);

  std::string bytes() const { return proto.SerializeAsString(); }

  onnx::ModelProto proto;
};

/// Returns the error of importing `bytes`, or "". Fails the test unless the error is ModelRejected,
/// or Usage for an option that does not fit the model.
std::string importError(const std::string &bytes, const frontend::ImportOptions &options = {});
/// The same for a file.
std::string importFileError(const std::string &path, const frontend::ImportOptions &options = {});

} // namespace tbc::test

#endif // TBC_TESTS_FRONTEND_MODELBUILDER_H
