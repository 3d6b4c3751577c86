// RUN: tbc-opt %s --tbc-pad-vocabularies=multiple=4 | FileCheck %s

// The table's rows, the bias and the logits of 127 classes become 128; padding has the number -1.
// CHECK-LABEL: func.func @padded
// CHECK-SAME:    %[[TABLE:[a-z0-9]+]]: tensor<128x2xf32> {tbc.role = #tbc.role<param>, tbc.unpadded = array<i64: 127, 2>}
// CHECK-SAME:    %[[BIAS:[a-z0-9]+]]: tensor<128xf32> {tbc.role = #tbc.role<param>, tbc.unpadded = array<i64: 127>}
// CHECK:         %[[IOTA:.+]] = tbc.iota{{.*}} -> tensor<128xi64>
// CHECK:         tbc.constant {{.*}}127
// CHECK:         %[[VALID:.+]] = tbc.compare %[[IOTA]], {{.*}}"lt"
// CHECK:         tbc.constant {{.*}}-1
// CHECK:         %[[NUMBERS:.+]] = tbc.select %[[VALID]], %[[IOTA]]
// CHECK:         tbc.reduce_max %[[NUMBERS]]
// CHECK:         tbc.embedding %[[TABLE]], %{{.+}}, %[[NUMBERS]]
// CHECK:         tbc.einsum {{.*}} -> tensor<3x128xf32>
// CHECK:         tbc.class_max {{.*}}tensor<3x128xf32>
func.func @padded(%table: tensor<127x2xf32> {tbc.role = #tbc.role<param>}, %bias: tensor<127xf32> {tbc.role = #tbc.role<param>},
                  %ids: tensor<3xi64> {tbc.role = #tbc.role<input>, tbc.batch_dim = 0}) -> (tensor<3xf32>) {
  %n = tbc.iota {dim = 0 : i64} : () -> tensor<127xi64>
  %last = tbc.reduce_max %n {dims = array<i64: 0>} : (tensor<127xi64>) -> tensor<i64>
  %x = tbc.embedding %table, %ids, %n, %last : (tensor<127x2xf32>, tensor<3xi64>, tensor<127xi64>, tensor<i64>) -> tensor<3x2xf32>
  %y = tbc.einsum %x, %table {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 2, 1>, out_labels = array<i64: 0, 2>} : (tensor<3x2xf32>, tensor<127x2xf32>) -> tensor<3x127xf32>
  %b = tbc.broadcast %bias {dims = array<i64: 1>} : (tensor<127xf32>) -> tensor<3x127xf32>
  %z = tbc.add %y, %b : tensor<3x127xf32>
  %m = tbc.class_max %z, %n : (tensor<3x127xf32>, tensor<127xi64>) -> tensor<3xf32>
  return %m : tensor<3xf32>
}

// A sum over the classes that knows nothing of padding.
// CHECK-LABEL: func.func @summed
// CHECK-SAME:    tensor<127x2xf32>
func.func @summed(%table: tensor<127x2xf32> {tbc.role = #tbc.role<param>}, %ids: tensor<3xi64> {tbc.role = #tbc.role<input>, tbc.batch_dim = 0})
    -> (tensor<3x2xf32>, tensor<2xf32>) {
  %n = tbc.iota {dim = 0 : i64} : () -> tensor<127xi64>
  %last = tbc.reduce_max %n {dims = array<i64: 0>} : (tensor<127xi64>) -> tensor<i64>
  %x = tbc.embedding %table, %ids, %n, %last : (tensor<127x2xf32>, tensor<3xi64>, tensor<127xi64>, tensor<i64>) -> tensor<3x2xf32>
  %s = tbc.reduce_sum %table {dims = array<i64: 0>} : (tensor<127x2xf32>) -> tensor<2xf32>
  return %x, %s : tensor<3x2xf32>, tensor<2xf32>
}

// Classes with values from outside: there are none for padding.
// CHECK-LABEL: func.func @weighted
// CHECK-SAME:    tensor<127x2xf32>
func.func @weighted(%table: tensor<127x2xf32> {tbc.role = #tbc.role<param>}, %w: tensor<127xf32> {tbc.role = #tbc.role<input>},
                    %x: tensor<3x2xf32> {tbc.role = #tbc.role<input>, tbc.batch_dim = 0}) -> tensor<3xf32> {
  %n = tbc.iota {dim = 0 : i64} : () -> tensor<127xi64>
  %y = tbc.einsum %x, %table {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 2, 1>, out_labels = array<i64: 0, 2>} : (tensor<3x2xf32>, tensor<127x2xf32>) -> tensor<3x127xf32>
  %b = tbc.broadcast %w {dims = array<i64: 1>} : (tensor<127xf32>) -> tensor<3x127xf32>
  %z = tbc.mul %y, %b : tensor<3x127xf32>
  %m = tbc.class_max %z, %n : (tensor<3x127xf32>, tensor<127xi64>) -> tensor<3xf32>
  return %m : tensor<3xf32>
}

// Three more on 61 would be more than a 64th.
// CHECK-LABEL: func.func @small
// CHECK-SAME:    tensor<61x2xf32>
func.func @small(%table: tensor<61x2xf32> {tbc.role = #tbc.role<param>}, %ids: tensor<3xi64> {tbc.role = #tbc.role<input>, tbc.batch_dim = 0})
    -> tensor<3x2xf32> {
  %n = tbc.iota {dim = 0 : i64} : () -> tensor<61xi64>
  %last = tbc.reduce_max %n {dims = array<i64: 0>} : (tensor<61xi64>) -> tensor<i64>
  %x = tbc.embedding %table, %ids, %n, %last : (tensor<61x2xf32>, tensor<3xi64>, tensor<61xi64>, tensor<i64>) -> tensor<3x2xf32>
  return %x : tensor<3x2xf32>
}
