//! The W3C trace context of a request: the caller's trace goes on, each send is a span of its own.

use std::collections::HashMap;

use http::HeaderMap;
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry_http::HeaderInjector;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use overdue_runtime::engine::Randomness;

/// Sets `traceparent`: in the trace of `caller`, or in a fresh one, which nobody has asked to be sampled.
pub(crate) fn inject(caller: Option<&str>, random: &dyn Randomness, headers: &mut HeaderMap) {
    let propagator = TraceContextPropagator::new();
    let carrier: HashMap<_, _> = caller.map(|parent| ("traceparent".to_owned(), parent.to_owned())).into_iter().collect();
    let parent = propagator.extract_with_context(&Context::new(), &carrier);
    let parent = parent.span().span_context().clone();
    let (trace_id, flags) = if parent.is_valid() {
        (parent.trace_id(), parent.trace_flags())
    } else {
        let [high, low] = [random.next_u64(), random.next_u64().max(1)];
        (TraceId::from(u128::from(high) << 64 | u128::from(low)), TraceFlags::default())
    };
    // All zeros are invalid by the recommendation.
    let span_id = SpanId::from(random.next_u64().max(1));
    let span = SpanContext::new(trace_id, span_id, flags, false, TraceState::default());
    let context = Context::new().with_remote_span_context(span);
    propagator.inject_context(&context, &mut HeaderInjector(headers));
    // The propagator writes it even when it is empty.
    headers.remove("tracestate");
}

#[cfg(test)]
mod tests {
    use overdue_runtime::testing::SeededRandom;

    use super::*;

    fn injected(caller: Option<&str>, random: &SeededRandom) -> String {
        let mut headers = HeaderMap::new();
        inject(caller, random, &mut headers);
        assert_eq!(headers.len(), 1);
        headers["traceparent"].to_str().unwrap().to_owned()
    }

    #[test]
    fn the_callers_trace_goes_on_with_a_new_span_for_each_send() {
        let random = SeededRandom::new(1);
        let caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let (first, second) = (injected(Some(caller), &random), injected(Some(caller), &random));
        for sent in [&first, &second] {
            assert!(sent.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && sent.ends_with("-01"), "{sent}");
            assert!(!sent.contains("b7ad6b7169203331"));
        }
        assert_ne!(first, second);
    }

    #[test]
    fn without_a_valid_caller_a_fresh_trace_begins() {
        let random = SeededRandom::new(1);
        for caller in [None, Some(""), Some("00-zz-1-01"), Some("00-00000000000000000000000000000000-b7ad6b7169203331-01")] {
            let sent = injected(caller, &random);
            assert_eq!((sent.len(), &sent[..3], &sent[52..]), (55, "00-", "-00"), "{sent}");
        }
    }
}
