//! What is asked of the owner of an execution, in a form that can travel from node to node.

use serde::{Deserialize, Serialize};

use super::{IncomingSignal, Input, OperatorAction, ReplyId};

/// A request that only the owner of an execution can answer. It was checked by the node that took it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Ask {
    /// Take a signal.
    Signal(IncomingSignal),
    /// Take a cancel request, of a workflow that does not take it as a signal.
    Cancel { reason: String, actor: String },
    /// End the execution.
    Terminate { reason: String, actor: String },
    /// Decide about an activity.
    Operate { number: u64, action: OperatorAction, reason: String, actor: String },
}

impl Ask {
    pub(crate) fn input(self, reply: ReplyId) -> Input {
        match self {
            Self::Signal(signal) => Input::Signal { signal, reply },
            Self::Cancel { reason, actor } => Input::Cancel { reason, actor, reply },
            Self::Terminate { reason, actor } => Input::Terminate { reason, actor, reply },
            Self::Operate { number, action, reason, actor } => Input::Operate { number, action, reason, actor, reply },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Answer, RefusedInput};
    use crate::id::RunId;
    use crate::payload::{InvalidField, Payload};

    #[test]
    fn what_travels_between_nodes_arrives_as_it_was() {
        let signal = IncomingSignal {
            name: "payment-succeeded".into(),
            signal_id: "tx-1".into(),
            payload: Payload::from_json(r#"{"amount": 9007199254740993.10, "b":1,"a":2}"#).unwrap(),
            subject: Some("tx-1".into()),
            identity: [7; 16],
        };
        let resolve = OperatorAction::Resolve(Payload::from_json("3544790567247868102").unwrap());
        for ask in [
            Ask::Signal(signal),
            Ask::Cancel { reason: "r".into(), actor: "a".into() },
            Ask::Terminate { reason: "r".into(), actor: "a".into() },
            Ask::Operate { number: 7, action: resolve, reason: "r".into(), actor: "a".into() },
            Ask::Operate { number: 7, action: OperatorAction::Skip, reason: "r".into(), actor: "a".into() },
        ] {
            let text = serde_json::to_string(&ask).unwrap();
            assert_eq!(serde_json::from_str::<Ask>(&text).unwrap(), ask, "{text}");
        }
        for answer in [
            Answer::Applied,
            Answer::Refused(RefusedInput::NotOwner),
            Answer::Refused(RefusedInput::InvalidResult(InvalidField::new("a.b", "no"))),
            Answer::Refused(RefusedInput::Closed(RunId::new(1, [3; 10]))),
        ] {
            let text = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer, "{text}");
        }
    }
}
