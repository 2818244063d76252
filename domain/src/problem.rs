//! The registry of error codes: one row per way a request can fail.

/// What went wrong, independent of the surface that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    InvalidParameter,
    NotFound,
    AlreadyExists,
    Conflict,
    StaleAttempt,
    Unauthenticated,
    Forbidden,
    TooLarge,
    UnsupportedMediaType,
    NotImplemented,
    Unavailable,
    Internal,
}

impl ErrorCode {
    /// The code in native answers (`application/problem+json`).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidParameter => "invalid_parameter",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::Conflict => "conflict",
            Self::StaleAttempt => "stale_attempt",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::TooLarge => "too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::NotImplemented => "not_implemented",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    /// The HTTP status of native answers.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::InvalidParameter => 400,
            Self::NotFound => 404,
            Self::AlreadyExists | Self::Conflict | Self::StaleAttempt => 409,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::TooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::NotImplemented => 501,
            Self::Unavailable => 503,
            Self::Internal => 500,
        }
    }

    /// The code and HTTP status that MLflow clients know.
    #[must_use]
    pub const fn mlflow(self) -> (&'static str, u16) {
        match self {
            Self::InvalidParameter | Self::UnsupportedMediaType => ("INVALID_PARAMETER_VALUE", 400),
            Self::NotFound => ("RESOURCE_DOES_NOT_EXIST", 404),
            Self::AlreadyExists => ("RESOURCE_ALREADY_EXISTS", 400),
            Self::Conflict | Self::StaleAttempt => ("RESOURCE_CONFLICT", 409),
            Self::Unauthenticated => ("UNAUTHENTICATED", 401),
            Self::Forbidden => ("PERMISSION_DENIED", 403),
            Self::TooLarge => ("INVALID_PARAMETER_VALUE", 413),
            Self::NotImplemented => ("NOT_IMPLEMENTED", 501),
            Self::Unavailable => ("TEMPORARILY_UNAVAILABLE", 503),
            Self::Internal => ("INTERNAL_ERROR", 500),
        }
    }
}

/// One bad field of a request.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FieldError {
    /// Path of the field as the caller wrote it, e.g. `jobs.train.timeout`.
    pub field: String,
    /// What is wrong with it and what the limit is.
    pub message: String,
}
