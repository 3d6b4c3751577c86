// One example of every op. docs/ir.md shows them (docs/ir_reference.py).
// RUN: tbc-opt %s -o /dev/null

func.func @abs(%input: tensor<2x3xf32>) {
  %result = tbc.abs %input : tensor<2x3xf32>
  return
}

func.func @adafactor_step(%parameter: tensor<2x3xf32>, %direction: tensor<2x3xf32>,
      %parameter_squares: tensor<f32>, %direction_squares: tensor<f32>,
      %rate: tensor<f32>, %step: tensor<i64>) {
  %new_parameter = tbc.adafactor_step
      %parameter, %direction, %parameter_squares, %direction_squares, %rate, %step
      {count = 6 : i64, clip_threshold = 1.0 : f64, epsilon = 0.001 : f64, weight_decay = 0.0 : f64}
      : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<i64>)
      -> tensor<2x3xf32>
  return
}

func.func @adagrad(%parameter: tensor<2x3xf32>, %gradient: tensor<2x3xf32>,
      %sum: tensor<2x3xf32>, %rate: tensor<f32>, %step: tensor<i64>) {
  %new_parameter, %new_sum = tbc.adagrad %parameter, %gradient, %sum, %rate, %step
      {rate_decay = 0.0 : f64, epsilon = 1.0e-10 : f64, weight_decay = 0.0 : f64}
      : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>, tensor<i64>)
      -> (tensor<2x3xf32>, tensor<2x3xf32>)
  return
}

func.func @adam(%parameter: tensor<2x3xf32>, %gradient: tensor<2x3xf32>,
      %first_moment: tensor<2x3xf32>, %second_moment: tensor<2x3xf32>, %rate: tensor<f32>,
      %step: tensor<i64>) {
  %new_parameter, %new_first_moment, %new_second_moment = tbc.adam %parameter, %gradient,
        %first_moment, %second_moment, %rate, %step
      {beta1 = 0.9 : f64, beta2 = 0.999 : f64, epsilon = 1.0e-8 : f64, weight_decay = 0.0 : f64}
      : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>,
       tensor<i64>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>)
  return
}

func.func @adamw(%parameter: tensor<2x3xf32>, %gradient: tensor<2x3xf32>,
      %first_moment: tensor<2x3xf32>, %second_moment: tensor<2x3xf32>, %rate: tensor<f32>,
      %step: tensor<i64>) {
  %new_parameter, %new_first_moment, %new_second_moment = tbc.adamw %parameter, %gradient,
        %first_moment, %second_moment, %rate, %step
      {beta1 = 0.9 : f64, beta2 = 0.999 : f64, epsilon = 1.0e-8 : f64, weight_decay = 0.01 : f64}
      : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>,
       tensor<i64>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>)
  return
}

func.func @add(%lhs: tensor<2x3xf32>, %rhs: tensor<2x3xf32>) {
  %result = tbc.add %lhs, %rhs : tensor<2x3xf32>
  return
}

func.func @all_gather(%input: tensor<3x4xf32>) {
  %result = tbc.all_gather %input {axes = ["tp"], dim = 0 : i64, segments = array<i64: 1, 3, 1>}
      : (tensor<3x4xf32>) -> tensor<6x4xf32>
  return
}

func.func @all_reduce(%input: tensor<3x4xf32>) {
  %result = tbc.all_reduce %input {axes = ["dp", "fsdp"], kind = "sum"}
      : (tensor<3x4xf32>) -> tensor<3x4xf32>
  return
}

func.func @all_to_all(%input: tensor<6x2xf32>) {
  %result = tbc.all_to_all %input
      {axes = ["tp"], dim = 1 : i64, segments = array<i64: 1, 2, 1>, split_dim = 0 : i64,
       split_segments = array<i64: 1, 3, 1>}
      : (tensor<6x2xf32>) -> tensor<3x4xf32>
  return
}

func.func @and(%lhs: tensor<2x3xi1>, %rhs: tensor<2x3xi1>) {
  %result = tbc.and %lhs, %rhs : tensor<2x3xi1>
  return
}

func.func @atan(%input: tensor<2x3xf32>) {
  %result = tbc.atan %input : tensor<2x3xf32>
  return
}

func.func @attention(%query: tensor<2x4x3x5xf32>, %key: tensor<2x2x4x5xf32>,
      %value: tensor<2x2x4x6xf32>) {
  %result, %maximum, %denominator = tbc.attention %query, %key, %value
      {scale = 0.4 : f64, causal = true}
      : (tensor<2x4x3x5xf32>, tensor<2x2x4x5xf32>, tensor<2x2x4x6xf32>) -> (tensor<2x4x3x6xf32>,
       tensor<2x4x3xf32>, tensor<2x4x3xf32>)
  return
}

func.func @attention_bias_grad(%cotangent: tensor<2x4x3x6xf32>, %query: tensor<2x4x3x5xf32>,
      %key: tensor<2x2x4x5xf32>, %value: tensor<2x2x4x6xf32>, %result: tensor<2x4x3x6xf32>,
      %maximum: tensor<2x4x3xf32>, %denominator: tensor<2x4x3xf32>, %masks_0: tensor<4x3x4xf32>,
      %masks_1: tensor<2x4xf32>, %masks_2: tensor<4xf32>, %masks_3: tensor<2x4xi1>) {
  %bias_cotangent = tbc.attention_bias_grad %cotangent, %query, %key, %value, %result, %maximum,
        %denominator, %masks_0, %masks_1, %masks_2, %masks_3
      {scale = 0.4 : f64, causal = true, key_mask = true, biases = "hst,bt",
       soft_cap = 1.5 : f64, sink = true, bias = 0 : i64}
      : (tensor<2x4x3x6xf32>, tensor<2x4x3x5xf32>, tensor<2x2x4x5xf32>, tensor<2x2x4x6xf32>,
       tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>, tensor<4x3x4xf32>,
       tensor<2x4xf32>, tensor<4xf32>, tensor<2x4xi1>) -> tensor<4x3x4xf32>
  return
}

func.func @attention_grad(%cotangent: tensor<2x4x3x6xf32>, %query: tensor<2x4x3x5xf32>,
      %key: tensor<2x2x4x5xf32>, %value: tensor<2x2x4x6xf32>, %result: tensor<2x4x3x6xf32>,
      %maximum: tensor<2x4x3xf32>, %denominator: tensor<2x4x3xf32>) {
  %query_cotangent, %key_cotangent, %value_cotangent = tbc.attention_grad %cotangent, %query,
        %key, %value, %result, %maximum, %denominator
      {scale = 0.4 : f64, causal = true}
      : (tensor<2x4x3x6xf32>, tensor<2x4x3x5xf32>, tensor<2x2x4x5xf32>, tensor<2x2x4x6xf32>,
       tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>) -> (tensor<2x4x3x5xf32>,
       tensor<2x2x4x5xf32>, tensor<2x2x4x6xf32>)
  return
}

func.func @attention_merge(%result: tensor<1x2x3x4xf32>, %maximum: tensor<1x2x3xf32>,
      %denominator: tensor<1x2x3xf32>, %other_result: tensor<1x2x3x4xf32>,
      %other_maximum: tensor<1x2x3xf32>, %other_denominator: tensor<1x2x3xf32>) {
  %merged_result, %merged_maximum, %merged_denominator = tbc.attention_merge %result, %maximum,
        %denominator, %other_result, %other_maximum, %other_denominator
      : (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>, tensor<1x2x3x4xf32>,
       tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>,
       tensor<1x2x3xf32>)
  return
}

func.func @avg_pool(%input: tensor<2x2x5x5xf32>) {
  %result = tbc.avg_pool %input
      {kernel = array<i64: 3, 2>, strides = array<i64: 2, 2>, pads = array<i64: 1, 0, 1, 0>,
       count_include_pad = true}
      : (tensor<2x2x5x5xf32>) -> tensor<2x2x3x2xf32>
  return
}

func.func @avg_pool_grad(%cotangent: tensor<2x3x4x4xf32>) {
  %result = tbc.avg_pool_grad %cotangent
      {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>,
       count_include_pad = false}
      : (tensor<2x3x4x4xf32>) -> tensor<2x3x8x8xf32>
  return
}

func.func @batch_norm(%input: tensor<2x3x4xf32>, %scale: tensor<3xf32>, %bias: tensor<3xf32>,
      %mean: tensor<3xf32>, %variance: tensor<3xf32>) {
  %result = tbc.batch_norm %input, %scale, %bias, %mean, %variance
      {epsilon = 1.0e-5 : f64, momentum = 0.9 : f64}
      : (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>,
       tensor<3xf32>) -> tensor<2x3x4xf32>
  return
}

func.func @batch_norm_train(%input: tensor<3x2x4xf32>, %scale: tensor<2xf32>,
      %bias: tensor<2xf32>, %running_mean: tensor<2xf32>, %running_variance: tensor<2xf32>) {
  %result, %new_mean, %new_variance = tbc.batch_norm_train %input, %scale, %bias, %running_mean,
        %running_variance
      {epsilon = 1.0e-5 : f64, momentum = 0.9 : f64, unbiased = false}
      : (tensor<3x2x4xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>,
       tensor<2xf32>) -> (tensor<3x2x4xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

func.func @bitwise_and(%lhs: tensor<4xi64>, %rhs: tensor<4xi64>) {
  %result = tbc.bitwise_and %lhs, %rhs : tensor<4xi64>
  return
}

func.func @bitwise_or(%lhs: tensor<4xi64>, %rhs: tensor<4xi64>) {
  %result = tbc.bitwise_or %lhs, %rhs : tensor<4xi64>
  return
}

func.func @bitwise_xor(%lhs: tensor<4xi64>, %rhs: tensor<4xi64>) {
  %result = tbc.bitwise_xor %lhs, %rhs : tensor<4xi64>
  return
}

func.func @broadcast(%input: tensor<3x1xf32>) {
  %result = tbc.broadcast %input {dims = array<i64: 1, 3>}
      : (tensor<3x1xf32>) -> tensor<2x3x4x1xf32>
  return
}

func.func @cast(%input: tensor<2x3xf32>) {
  %result = tbc.cast %input : (tensor<2x3xf32>) -> tensor<2x3xf64>
  return
}

func.func @ceil(%input: tensor<2x3xf32>) {
  %result = tbc.ceil %input : tensor<2x3xf32>
  return
}

func.func @class_max(%logits: tensor<2x4xf32>, %numbers: tensor<4xi64>) {
  %result = tbc.class_max %logits, %numbers : (tensor<2x4xf32>, tensor<4xi64>) -> tensor<2xf32>
  return
}

func.func @class_sums(%logits: tensor<2x4xf32>, %maximum: tensor<2xf32>, %labels: tensor<2xi64>,
      %numbers: tensor<4xi64>, %last: tensor<i64>) {
  %denominator, %target = tbc.class_sums %logits, %maximum, %labels, %numbers, %last
      {ignore_index = -100 : i64, label_weight = 1.0 : f64, class_weight = 0.0 : f64}
      : (tensor<2x4xf32>, tensor<2xf32>, tensor<2xi64>, tensor<4xi64>,
       tensor<i64>) -> (tensor<2xf32>, tensor<2xf32>)
  return
}

func.func @class_sums_grad(%logits: tensor<2x4xf32>, %maximum: tensor<2xf32>,
      %labels: tensor<2xi64>, %numbers: tensor<4xi64>, %last: tensor<i64>,
      %denominator_cotangent: tensor<2xf32>, %target_cotangent: tensor<2xf32>) {
  %result = tbc.class_sums_grad %logits, %maximum, %labels, %numbers, %last,
        %denominator_cotangent, %target_cotangent
      {ignore_index = -100 : i64, label_weight = 1.0 : f64, class_weight = 0.0 : f64}
      : (tensor<2x4xf32>, tensor<2xf32>, tensor<2xi64>, tensor<4xi64>, tensor<i64>,
       tensor<2xf32>, tensor<2xf32>) -> tensor<2x4xf32>
  return
}

func.func @clip_value(%input: tensor<2x3xf32>) {
  %result = tbc.clip_value %input {limit = 1.0 : f64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @combine(%input: tensor<2x2x2x4xf32>, %weights: tensor<2x3x2xf32>) {
  %result = tbc.combine %input, %weights {weighted = true}
      : (tensor<2x2x2x4xf32>, tensor<2x3x2xf32>) -> tensor<2x3x4xf32>
  return
}

func.func @combine_weights_grad(%cotangent: tensor<2x3x4xf32>, %input: tensor<2x5x2x4xf32>,
      %weights: tensor<2x3x5xf32>) {
  %result = tbc.combine_weights_grad %cotangent, %input, %weights
      : (tensor<2x3x4xf32>, tensor<2x5x2x4xf32>, tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
  return
}

func.func @compare(%lhs: tensor<2x3xf32>, %rhs: tensor<2x3xf32>) {
  %result = tbc.compare %lhs, %rhs {predicate = "lt"}
      : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
  return
}

func.func @concat(%inputs_0: tensor<2x1xf32>, %inputs_1: tensor<2x3xf32>) {
  %result = tbc.concat %inputs_0, %inputs_1 {dim = 1 : i64}
      : (tensor<2x1xf32>, tensor<2x3xf32>) -> tensor<2x4xf32>
  return
}

func.func @constant() {
  %result = tbc.constant dense<[1, 2, 4]> : tensor<3xi64> : tensor<3xi64>
  return
}

func.func @conv(%input: tensor<2x4x5x6xf32>, %weight: tensor<3x4x3x2xf32>) {
  %result = tbc.conv %input, %weight
      {strides = array<i64: 2, 3>, pads = array<i64: 1, 0, 1, 2>, dilations = array<i64: 1, 2>,
       groups = 1 : i64}
      : (tensor<2x4x5x6xf32>, tensor<3x4x3x2xf32>) -> tensor<2x3x3x2xf32>
  return
}

func.func @conv_grad_input(%cotangent: tensor<2x3x3x2xf32>, %weight: tensor<3x4x3x2xf32>) {
  %result = tbc.conv_grad_input %cotangent, %weight
      {strides = array<i64: 2, 3>, pads = array<i64: 1, 0, 1, 2>, dilations = array<i64: 1, 2>,
       groups = 1 : i64}
      : (tensor<2x3x3x2xf32>, tensor<3x4x3x2xf32>) -> tensor<2x4x5x6xf32>
  return
}

func.func @conv_grad_weight(%input: tensor<2x3x8x8xf32>, %cotangent: tensor<2x4x4x4xf32>) {
  %result = tbc.conv_grad_weight %input, %cotangent
      {strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>,
       groups = 1 : i64}
      : (tensor<2x3x8x8xf32>, tensor<2x4x4x4xf32>) -> tensor<4x3x3x3xf32>
  return
}

func.func @cos(%input: tensor<2x3xf32>) {
  %result = tbc.cos %input : tensor<2x3xf32>
  return
}

func.func @count_not_finite(%gradients_0: tensor<2x3xf32>, %gradients_1: tensor<4xf32>) {
  %result = tbc.count_not_finite %gradients_0, %gradients_1
      : (tensor<2x3xf32>, tensor<4xf32>) -> tensor<f32>
  return
}

func.func @cross_entropy(%logits: tensor<2x3x4xf32>, %labels: tensor<2x3xi64>) {
  %loss, %maximum, %denominator = tbc.cross_entropy %logits, %labels
      {ignore_index = -100 : i64, label_smoothing = 0.25 : f64}
      : (tensor<2x3x4xf32>, tensor<2x3xi64>) -> (tensor<2x3xf32>, tensor<2x3xf32>,
       tensor<2x3xf32>)
  return
}

func.func @cross_entropy_grad(%logits: tensor<2x3x4xf32>, %labels: tensor<2x3xi64>,
      %maximum: tensor<2x3xf32>, %denominator: tensor<2x3xf32>, %cotangent: tensor<2x3xf32>) {
  %result = tbc.cross_entropy_grad %logits, %labels, %maximum, %denominator, %cotangent
      {ignore_index = -100 : i64, label_smoothing = 0.1 : f64}
      : (tensor<2x3x4xf32>, tensor<2x3xi64>, tensor<2x3xf32>, tensor<2x3xf32>,
       tensor<2x3xf32>) -> tensor<2x3x4xf32>
  return
}

func.func @dispatch(%input: tensor<2x3x4xf32>, %weights: tensor<2x3x2xf32>) {
  %result = tbc.dispatch %input, %weights {capacity = 2 : i64, weighted = true}
      : (tensor<2x3x4xf32>, tensor<2x3x2xf32>) -> tensor<2x2x2x4xf32>
  return
}

func.func @div(%lhs: tensor<2x3xf32>, %rhs: tensor<2x3xf32>) {
  %result = tbc.div %lhs, %rhs : tensor<2x3xf32>
  return
}

func.func @detach(%input: tensor<2x3xf32>) {
  %result = tbc.detach %input : tensor<2x3xf32>
  return
}

func.func @divide_by_norm(%input: tensor<2x3xf32>, %squares: tensor<2x3xf32>) {
  %result = tbc.divide_by_norm %input, %squares {epsilon = 1.0e-7 : f64}
      : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @divide_by_root(%input: tensor<2x3xf32>, %squares: tensor<2x3xf32>) {
  %result = tbc.divide_by_root %input, %squares {epsilon = 1.0e-8 : f64}
      : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @dropout(%input: tensor<2x3xf32>) {
  %result = tbc.dropout %input {ratio = 0.25 : f64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @factored_direction(%gradient: tensor<2x3xf32>, %row: tensor<2x3xf32>,
      %column: tensor<2x3xf32>, %total: tensor<2x3xf32>) {
  %direction = tbc.factored_direction %gradient, %row, %column, %total
      {count = 2 : i64, epsilon = 1.0e-7 : f64}
      : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @factored_moment(%sums: tensor<2xf32>, %moment: tensor<2xf32>, %step: tensor<i64>) {
  %new_moment = tbc.factored_moment %sums, %moment, %step {count = 3 : i64, beta2_decay = -0.8 : f64}
      : (tensor<2xf32>, tensor<2xf32>, tensor<i64>) -> tensor<2xf32>
  return
}

func.func @random_uniform(%like: tensor<2x3xf32>) {
  %result = tbc.random_uniform %like {key = 17 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @random_uniform_train(%step: tensor<i64>, %indices_0: tensor<4xi64>,
      %indices_1: tensor<6xi64>) {
  %result = tbc.random_uniform_train %step, %indices_0, %indices_1 {seed = 3 : i64, key = 17 : i64}
      : (tensor<i64>, tensor<4xi64>, tensor<6xi64>) -> tensor<4x6xf32>
  return
}

func.func @dropout_train(%input: tensor<4x6xf32>, %step: tensor<i64>, %indices_0: tensor<4xi64>,
      %indices_1: tensor<6xi64>) {
  %result = tbc.dropout_train %input, %step, %indices_0, %indices_1
      {ratio = 0.25 : f64, seed = 3 : i64, key = 17 : i64}
      : (tensor<4x6xf32>, tensor<i64>, tensor<4xi64>, tensor<6xi64>) -> tensor<4x6xf32>
  return
}

func.func @einsum(%lhs: tensor<2x3x4xf32>, %rhs: tensor<5x4xf32>) {
  %result = tbc.einsum %lhs, %rhs
      {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 3, 2>,
       out_labels = array<i64: 0, 1, 3>}
      : (tensor<2x3x4xf32>, tensor<5x4xf32>) -> tensor<2x3x5xf32>
  return
}

func.func @embedding(%table: tensor<5x3xf32>, %indices: tensor<2xi64>, %numbers: tensor<5xi64>,
      %last: tensor<i64>) {
  %result = tbc.embedding %table, %indices, %numbers, %last
      : (tensor<5x3xf32>, tensor<2xi64>, tensor<5xi64>, tensor<i64>) -> tensor<2x3xf32>
  return
}

func.func @embedding_grad(%updates: tensor<2x3xf32>, %indices: tensor<2xi64>,
      %numbers: tensor<5xi64>, %last: tensor<i64>) {
  %result = tbc.embedding_grad %updates, %indices, %numbers, %last
      : (tensor<2x3xf32>, tensor<2xi64>, tensor<5xi64>, tensor<i64>) -> tensor<5x3xf32>
  return
}

func.func @erf(%input: tensor<2x3xf32>) {
  %result = tbc.erf %input : tensor<2x3xf32>
  return
}

func.func @exp(%input: tensor<2x3xf32>) {
  %result = tbc.exp %input : tensor<2x3xf32>
  return
}

func.func @factor_size() {
  %result = tbc.factor_size {count = 128 : i64, samples = 32 : i64} : () -> tensor<f32>
  return
}

func.func @fetch(%input: tensor<2x3xf32>) {
  %result = tbc.fetch %input : tensor<2x3xf32>
  return
}

func.func @floor(%input: tensor<2x3xf32>) {
  %result = tbc.floor %input : tensor<2x3xf32>
  return
}

func.func @gather(%table: tensor<3x4xf32>, %indices: tensor<2x2xi64>) {
  %result = tbc.gather %table, %indices {dim = 0 : i64}
      : (tensor<3x4xf32>, tensor<2x2xi64>) -> tensor<2x2x4xf32>
  return
}

func.func @gather_elements(%table: tensor<2x3x4xf32>, %indices: tensor<2x5x4xi64>) {
  %result = tbc.gather_elements %table, %indices {dim = 1 : i64}
      : (tensor<2x3x4xf32>, tensor<2x5x4xi64>) -> tensor<2x5x4xf32>
  return
}

func.func @gather_matrices(%input: tensor<2x3xf32>) {
  %result = tbc.gather_matrices %input : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @gelu(%input: tensor<2x3xf32>) {
  %result = tbc.gelu %input {approximate = "none"} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @gelu_grad(%input: tensor<2x3xf32>, %cotangent: tensor<2x3xf32>) {
  %result = tbc.gelu_grad %input, %cotangent {approximate = "none"}
      : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @gru(%input: tensor<3x2x9xf32>, %weight: tensor<9x3xf32>, %bias: tensor<3xf32>,
      %hidden: tensor<2x3xf32>) {
  %result, %gates, %product = tbc.gru %input, %weight, %bias, %hidden
      {reverse = false, reset_after = true}
      : (tensor<3x2x9xf32>, tensor<9x3xf32>, tensor<3xf32>,
       tensor<2x3xf32>) -> (tensor<3x2x3xf32>, tensor<3x2x9xf32>, tensor<3x2x3xf32>)
  return
}

func.func @gru_grad(%cotangent: tensor<3x2x3xf32>, %weight: tensor<9x3xf32>,
      %hidden: tensor<2x3xf32>, %states: tensor<3x2x3xf32>, %gates: tensor<3x2x9xf32>,
      %product: tensor<3x2x3xf32>) {
  %gates_cotangent, %product_cotangent, %hidden_cotangent = tbc.gru_grad %cotangent, %weight,
        %hidden, %states, %gates, %product
      {reverse = false, reset_after = false}
      : (tensor<3x2x3xf32>, tensor<9x3xf32>, tensor<2x3xf32>, tensor<3x2x3xf32>,
       tensor<3x2x9xf32>, tensor<3x2x3xf32>) -> (tensor<3x2x9xf32>, tensor<3x2x3xf32>,
       tensor<2x3xf32>)
  return
}

func.func @iota() {
  %result = tbc.iota {dim = 0 : i64} : () -> tensor<4xi64>
  return
}

func.func @is_nan(%input: tensor<2x3xf32>) {
  %result = tbc.is_nan %input : (tensor<2x3xf32>) -> tensor<2x3xi1>
  return
}

func.func @layer_norm(%input: tensor<2x3x6xf32>, %weight: tensor<6xf32>, %bias: tensor<6xf32>) {
  %result, %mean, %rstd = tbc.layer_norm %input, %weight, %bias {epsilon = 1.0e-5 : f64}
      : (tensor<2x3x6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<2x3x6xf32>,
       tensor<2x3xf32>, tensor<2x3xf32>)
  return
}

func.func @layer_norm_grad(%cotangent: tensor<2x3x6xf32>, %input: tensor<2x3x6xf32>,
      %weight: tensor<6xf32>, %mean: tensor<2x3xf32>, %rstd: tensor<2x3xf32>) {
  %result = tbc.layer_norm_grad %cotangent, %input, %weight, %mean, %rstd
      : (tensor<2x3x6xf32>, tensor<2x3x6xf32>, tensor<6xf32>, tensor<2x3xf32>,
       tensor<2x3xf32>) -> tensor<2x3x6xf32>
  return
}

func.func @log(%input: tensor<2x3xf32>) {
  %result = tbc.log %input : tensor<2x3xf32>
  return
}

func.func @lstm(%input: tensor<3x2x12xf32>, %weight: tensor<12x3xf32>, %hidden: tensor<2x3xf32>,
      %cell: tensor<2x3xf32>) {
  %result, %cells, %gates = tbc.lstm %input, %weight, %hidden, %cell {reverse = false}
      : (tensor<3x2x12xf32>, tensor<12x3xf32>, tensor<2x3xf32>,
       tensor<2x3xf32>) -> (tensor<3x2x3xf32>, tensor<3x2x3xf32>, tensor<3x2x12xf32>)
  return
}

func.func @lstm_grad(%cotangent: tensor<3x2x3xf32>, %cells_cotangent: tensor<3x2x3xf32>,
      %weight: tensor<12x3xf32>, %cell: tensor<2x3xf32>, %cells: tensor<3x2x3xf32>,
      %gates: tensor<3x2x12xf32>) {
  %gates_cotangent, %hidden_cotangent, %cell_cotangent = tbc.lstm_grad %cotangent,
        %cells_cotangent, %weight, %cell, %cells, %gates
      {reverse = true}
      : (tensor<3x2x3xf32>, tensor<3x2x3xf32>, tensor<12x3xf32>, tensor<2x3xf32>,
       tensor<3x2x3xf32>, tensor<3x2x12xf32>) -> (tensor<3x2x12xf32>, tensor<2x3xf32>,
       tensor<2x3xf32>)
  return
}

func.func @max_pool(%input: tensor<2x2x5x5xf32>) {
  %result = tbc.max_pool %input
      {kernel = array<i64: 3, 2>, strides = array<i64: 2, 2>, pads = array<i64: 1, 0, 1, 0>,
       dilations = array<i64: 1, 2>}
      : (tensor<2x2x5x5xf32>) -> tensor<2x2x3x2xf32>
  return
}

func.func @max_pool_grad(%input: tensor<2x3x8x8xf32>, %cotangent: tensor<2x3x4x4xf32>) {
  %result = tbc.max_pool_grad %input, %cotangent
      {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>,
       dilations = array<i64: 1, 1>}
      : (tensor<2x3x8x8xf32>, tensor<2x3x4x4xf32>) -> tensor<2x3x8x8xf32>
  return
}

func.func @maximum(%lhs: tensor<2x3xf32>, %rhs: tensor<2x3xf32>) {
  %result = tbc.maximum %lhs, %rhs : tensor<2x3xf32>
  return
}

func.func @minimum(%lhs: tensor<2x3xf32>, %rhs: tensor<2x3xf32>) {
  %result = tbc.minimum %lhs, %rhs : tensor<2x3xf32>
  return
}

func.func @mul(%lhs: tensor<2x3xf32>, %rhs: tensor<2x3xf32>) {
  %result = tbc.mul %lhs, %rhs : tensor<2x3xf32>
  return
}

func.func @muon_momentum(%gradient: tensor<2x3xf32>, %buffer: tensor<2x3xf32>) {
  %new_buffer, %direction = tbc.muon_momentum %gradient, %buffer
      {momentum = 0.95 : f64, nesterov = true}
      : (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>)
  return
}

func.func @muon_step(%parameter: tensor<2x3xf32>, %direction: tensor<2x3xf32>,
      %rate: tensor<f32>) {
  %new_parameter = tbc.muon_step %parameter, %direction, %rate
      {scale = 1.0 : f64, weight_decay = 0.1 : f64}
      : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  return
}

func.func @neg(%input: tensor<2x3xf32>) {
  %result = tbc.neg %input : tensor<2x3xf32>
  return
}

func.func @norm_scale_grad(%cotangent: tensor<2x3x6xf32>, %input: tensor<2x3x6xf32>,
      %mean: tensor<2x3xf32>, %rstd: tensor<2x3xf32>) {
  %result = tbc.norm_scale_grad %cotangent, %input, %mean, %rstd
      : (tensor<2x3x6xf32>, tensor<2x3x6xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<6xf32>
  return
}

func.func @not(%input: tensor<2x3xi1>) {
  %result = tbc.not %input : tensor<2x3xi1>
  return
}

func.func @offload(%input: tensor<2x3xf32>) {
  %result = tbc.offload %input : tensor<2x3xf32>
  return
}

func.func @or(%lhs: tensor<2x3xi1>, %rhs: tensor<2x3xi1>) {
  %result = tbc.or %lhs, %rhs : tensor<2x3xi1>
  return
}

func.func @packed_attention(%packed: tensor<2x3x48xf32>) {
  %result, %maximum, %denominator = tbc.packed_attention %packed
      {scale = 0.4 : f64, causal = true, token_major = "O", heads = 4 : i64, key_heads = 2 : i64,
       packed_width = 6 : i64}
      : (tensor<2x3x48xf32>) -> (tensor<2x3x24xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)
  return
}

func.func @packed_attention_grad(%cotangent: tensor<2x3x24xf32>, %packed: tensor<2x3x48xf32>,
      %result: tensor<2x3x24xf32>, %maximum: tensor<2x4x3xf32>,
      %denominator: tensor<2x4x3xf32>) {
  %packed_cotangent = tbc.packed_attention_grad %cotangent, %packed, %result, %maximum,
        %denominator
      {scale = 0.4 : f64, causal = true, token_major = "O", heads = 4 : i64, key_heads = 2 : i64,
       packed_width = 6 : i64}
      : (tensor<2x3x24xf32>, tensor<2x3x48xf32>, tensor<2x3x24xf32>, tensor<2x4x3xf32>,
       tensor<2x4x3xf32>) -> tensor<2x3x48xf32>
  return
}

func.func @pad(%input: tensor<2x3xf32>) {
  %result = tbc.pad %input {dim = 1 : i64, low = 1 : i64, high = 2 : i64}
      : (tensor<2x3xf32>) -> tensor<2x6xf32>
  return
}

func.func @permute(%input: tensor<3x4xf32>) {
  %result = tbc.permute %input {axes = ["cp"]} : (tensor<3x4xf32>) -> tensor<3x4xf32>
  return
}

func.func @pow(%lhs: tensor<2x3xf32>, %rhs: tensor<2x3xf32>) {
  %result = tbc.pow %lhs, %rhs : tensor<2x3xf32>
  return
}

func.func @reciprocal(%input: tensor<2x3xf32>) {
  %result = tbc.reciprocal %input : tensor<2x3xf32>
  return
}

func.func @reduce_max(%input: tensor<2x3x4xf32>) {
  %result = tbc.reduce_max %input {dims = array<i64: 0, 2>}
      : (tensor<2x3x4xf32>) -> tensor<3xf32>
  return
}

func.func @reduce_scatter(%input: tensor<6x4xf32>) {
  %result = tbc.reduce_scatter %input
      {axes = ["fsdp"], dim = 0 : i64, segments = array<i64: 1, 3, 1>}
      : (tensor<6x4xf32>) -> tensor<3x4xf32>
  return
}

func.func @reduce_sum(%input: tensor<2x3x4xf32>) {
  %result = tbc.reduce_sum %input {dims = array<i64: 0, 2>}
      : (tensor<2x3x4xf32>) -> tensor<3xf32>
  return
}

func.func @relu(%input: tensor<2x3xf32>) {
  %result = tbc.relu %input : tensor<2x3xf32>
  return
}

func.func @relu_grad(%input: tensor<2x3xf32>, %cotangent: tensor<2x3xf32>) {
  %result = tbc.relu_grad %input, %cotangent
      : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @reshape(%input: tensor<6x4x1xf32>) {
  %result = tbc.reshape %input
      {sizes = array<i64: 2, 3, 4>, in = array<i64: 2, 1, 0>, out = array<i64: 1, 2>}
      : (tensor<6x4x1xf32>) -> tensor<2x12xf32>
  return
}

func.func @rms_norm(%input: tensor<2x3x6xf32>, %weight: tensor<6xf32>) {
  %result, %rstd = tbc.rms_norm %input, %weight {epsilon = 1.0e-5 : f64}
      : (tensor<2x3x6xf32>, tensor<6xf32>) -> (tensor<2x3x6xf32>, tensor<2x3xf32>)
  return
}

func.func @rms_norm_grad(%cotangent: tensor<2x3x6xf32>, %input: tensor<2x3x6xf32>,
      %weight: tensor<6xf32>, %rstd: tensor<2x3xf32>) {
  %result = tbc.rms_norm_grad %cotangent, %input, %weight, %rstd
      : (tensor<2x3x6xf32>, tensor<2x3x6xf32>, tensor<6xf32>,
       tensor<2x3xf32>) -> tensor<2x3x6xf32>
  return
}

func.func @rms_scale_grad(%cotangent: tensor<2x3x6xf32>, %input: tensor<2x3x6xf32>,
      %rstd: tensor<2x3xf32>) {
  %result = tbc.rms_scale_grad %cotangent, %input, %rstd
      : (tensor<2x3x6xf32>, tensor<2x3x6xf32>, tensor<2x3xf32>) -> tensor<6xf32>
  return
}

func.func @root_direction(%gradient: tensor<3xf32>, %moment: tensor<3xf32>) {
  %direction = tbc.root_direction %gradient, %moment {epsilon = 1.0e-7 : f64}
      : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return
}

func.func @rotary(%input: tensor<2x2x3x4xf32>, %cos: tensor<3x2xf32>, %sin: tensor<3x2xf32>) {
  %result = tbc.rotary %input, %cos, %sin {inverse = false}
      : (tensor<2x2x3x4xf32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<2x2x3x4xf32>
  return
}

func.func @round(%input: tensor<2x3xf32>) {
  %result = tbc.round %input : tensor<2x3xf32>
  return
}

func.func @routed_experts(%input: tensor<3x4xf32>, %weights: tensor<3x2xf32>,
      %in: tensor<2x10x4xf32>, %out: tensor<2x6x5xf32>) {
  %result = tbc.routed_experts %input, %weights, %in, %out
      {activation = "silu", gated = true, top = 2 : i64}
      : (tensor<3x4xf32>, tensor<3x2xf32>, tensor<2x10x4xf32>,
       tensor<2x6x5xf32>) -> tensor<3x6xf32>
  return
}

func.func @routed_experts_grad(%cotangent: tensor<3x6xf32>, %input: tensor<3x4xf32>,
      %weights: tensor<3x2xf32>, %in: tensor<2x10x4xf32>, %out: tensor<2x6x5xf32>) {
  %input_cotangent, %weights_cotangent, %in_cotangent,
        %out_cotangent = tbc.routed_experts_grad %cotangent, %input, %weights, %in, %out
      {activation = "silu", gated = true, top = 2 : i64}
      : (tensor<3x6xf32>, tensor<3x4xf32>, tensor<3x2xf32>, tensor<2x10x4xf32>,
       tensor<2x6x5xf32>) -> (tensor<3x4xf32>, tensor<3x2xf32>, tensor<2x10x4xf32>,
       tensor<2x6x5xf32>)
  return
}

func.func @rsqrt(%input: tensor<2x3xf32>) {
  %result = tbc.rsqrt %input : tensor<2x3xf32>
  return
}

func.func @running_sum(%input: tensor<2x3x4xf32>) {
  %result = tbc.running_sum %input {dim = 1 : i64, exclusive = false, reverse = false}
      : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return
}

func.func @scale_by(%input: tensor<2x3xf32>, %factor: tensor<f32>) {
  %result = tbc.scale_by %input, %factor : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  return
}

func.func @scatter_add(%updates: tensor<2x2x4xf32>, %indices: tensor<2x2xi64>) {
  %result = tbc.scatter_add %updates, %indices {dim = 0 : i64}
      : (tensor<2x2x4xf32>, tensor<2x2xi64>) -> tensor<3x4xf32>
  return
}

func.func @scatter_elements_add(%updates: tensor<2x5x4xf32>, %indices: tensor<2x5x4xi64>) {
  %result = tbc.scatter_elements_add %updates, %indices {dim = 1 : i64}
      : (tensor<2x5x4xf32>, tensor<2x5x4xi64>) -> tensor<2x3x4xf32>
  return
}

func.func @select(%pred: tensor<2x3xi1>, %onTrue: tensor<2x3xf32>, %onFalse: tensor<2x3xf32>) {
  %result = tbc.select %pred, %onTrue, %onFalse
      : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @sgd(%parameter: tensor<2x3xf32>, %gradient: tensor<2x3xf32>, %rate: tensor<f32>) {
  %new_parameter = tbc.sgd %parameter, %gradient, %rate {weight_decay = 0.0 : f64}
      : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  return
}

func.func @sgd_momentum(%parameter: tensor<2x3xf32>, %gradient: tensor<2x3xf32>,
      %buffer: tensor<2x3xf32>, %rate: tensor<f32>) {
  %new_parameter, %new_buffer = tbc.sgd_momentum %parameter, %gradient, %buffer, %rate
      {momentum = 0.9 : f64, nesterov = false, weight_decay = 0.0 : f64}
      : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>) -> (tensor<2x3xf32>,
       tensor<2x3xf32>)
  return
}

func.func @shard_matrices(%input: tensor<2x3xf32>) {
  %result = tbc.shard_matrices %input : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @shard_slice(%input: tensor<6x4xf32>) {
  %result = tbc.shard_slice %input
      {axes = ["tp"], dim = 0 : i64, segments = array<i64: 1, 3, 1>}
      : (tensor<6x4xf32>) -> tensor<3x4xf32>
  return
}

func.func @sigmoid(%input: tensor<2x3xf32>) {
  %result = tbc.sigmoid %input : tensor<2x3xf32>
  return
}

func.func @silu(%input: tensor<2x3xf32>) {
  %result = tbc.silu %input : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @silu_grad(%input: tensor<2x3xf32>, %cotangent: tensor<2x3xf32>) {
  %result = tbc.silu_grad %input, %cotangent
      : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @sin(%input: tensor<2x3xf32>) {
  %result = tbc.sin %input : tensor<2x3xf32>
  return
}

func.func @slice(%input: tensor<2x5xf32>) {
  %result = tbc.slice %input {dim = 1 : i64, offset = 1 : i64, size = 3 : i64}
      : (tensor<2x5xf32>) -> tensor<2x3xf32>
  return
}

func.func @softmax(%input: tensor<2x3x4xf32>) {
  %result = tbc.softmax %input {dim = 2 : i64} : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return
}

func.func @softmax_grad(%input: tensor<2x3x4xf32>, %cotangent: tensor<2x3x4xf32>) {
  %result = tbc.softmax_grad %input, %cotangent {dim = 1 : i64}
      : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return
}

func.func @sqrt(%input: tensor<2x3xf32>) {
  %result = tbc.sqrt %input : tensor<2x3xf32>
  return
}

func.func @square_sum(%gradients_0: tensor<2x3xf32>, %gradients_1: tensor<4xf32>) {
  %result = tbc.square_sum %gradients_0, %gradients_1
      : (tensor<2x3xf32>, tensor<4xf32>) -> tensor<f32>
  return
}

func.func @square_totals(%tensors_0: tensor<2x3xf32>, %tensors_1: tensor<2x3xf32>) {
  %totals_0, %totals_1 = tbc.square_totals %tensors_0, %tensors_1
      : (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<f32>, tensor<f32>)
  return
}

func.func @stabilizer_max(%input: tensor<2x3xf32>) {
  %result = tbc.stabilizer_max %input {dims = array<i64: 1>}
      : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

func.func @step_total(%parts_0: tensor<f32>, %parts_1: tensor<f32>) {
  %totals_0, %totals_1 = tbc.step_total %parts_0, %parts_1
      : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
  return
}

func.func @sub(%lhs: tensor<2x3xf32>, %rhs: tensor<2x3xf32>) {
  %result = tbc.sub %lhs, %rhs : tensor<2x3xf32>
  return
}

func.func @swiglu(%gate: tensor<2x3xf32>, %up: tensor<2x3xf32>) {
  %result = tbc.swiglu %gate, %up : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @swiglu_grad(%gate: tensor<2x3xf32>, %up: tensor<2x3xf32>,
      %cotangent: tensor<2x3xf32>) {
  %gate_cotangent, %up_cotangent = tbc.swiglu_grad %gate, %up, %cotangent
      : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>)
  return
}

func.func @tanh(%input: tensor<2x3xf32>) {
  %result = tbc.tanh %input : tensor<2x3xf32>
  return
}

func.func @topk(%input: tensor<3x5xf32>) {
  %values, %indices = tbc.topk %input {dim = 1 : i64, largest = true}
      : (tensor<3x5xf32>) -> (tensor<3x2xf32>, tensor<3x2xi64>)
  return
}

func.func @transpose(%input: tensor<2x3x4xf32>) {
  %result = tbc.transpose %input {permutation = array<i64: 1, 2, 0>}
      : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>
  return
}

func.func @update_if(%old: tensor<2x3xf32>, %replacement: tensor<2x3xf32>,
      %condition: tensor<i1>) {
  %result = tbc.update_if %old, %replacement, %condition
      : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<i1>) -> tensor<2x3xf32>
  return
}

func.func @update_loss_scale(%scale: tensor<f32>, %tracker: tensor<i64>, %is_finite: tensor<i1>) {
  %new_scale, %new_tracker = tbc.update_loss_scale %scale, %tracker, %is_finite
      {growth_factor = 2.0 : f64, backoff_factor = 0.5 : f64, growth_interval = 2000 : i64}
      : (tensor<f32>, tensor<i64>, tensor<i1>) -> (tensor<f32>, tensor<i64>)
  return
}

func.func @weighted_sum(%lhs: tensor<2x3xf32>, %rhs: tensor<2x3xf32>) {
  %result = tbc.weighted_sum %lhs, %rhs {alpha = 3.4445 : f64, beta = 1.0 : f64}
      : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}
