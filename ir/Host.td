//===- Host.td - Copies between a device and its host (per-rank IR only) ---===//

#ifndef TBC_IR_HOST
#define TBC_IR_HOST

include "ir/TbcBase.td"

/// Created by the partitioner, translated one to one into the Program by codegen. The value is the same.
class Tbc_HostCopyOp<string mnemonic> : Op<Tbc_Dialect, mnemonic, [SameOperandsAndResultType]> {
  let assemblyFormat = "$input attr-dict `:` type($input)";
  let arguments = (ins Tbc_Tensor:$input);
  let results = (outs Tbc_Tensor:$result);
}

def Tbc_OffloadOp : Tbc_HostCopyOp<"offload"> {
  let summary = "Copies a tensor from the device to the memory of its host";
  let description = [{
    Its result is stored on the host: the function returns it with "tbc.on_host", and it has no
    other use.
    Bytes: the size of the tensor, once over the link between host and device.
  }];
}
def Tbc_FetchOp : Tbc_HostCopyOp<"fetch"> {
  let summary = "Copies a tensor from the memory of the host to the device";
  let description = [{
    Its operand is an argument on the host ("tbc.on_host"). Bytes: as for offload.
  }];
}

#endif // TBC_IR_HOST
